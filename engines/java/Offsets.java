package tidegauge;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.function.Consumer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The offsets at which a consumer group begins. */
public final class Offsets {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long PATIENCE_MS = 30_000;

    private Offsets() {}

    /** Commit the plan's offsets for its group, unless it has its own: then it goes on there. */
    public static void commitFirst(Plan plan) throws ExecutionException, InterruptedException {
        try (var admin = Admin.create(plan.kafka())) {
            var known = admin.listConsumerGroupOffsets(plan.group())
                .partitionsToOffsetAndMetadata().get();
            var missing = new HashMap<TopicPartition, OffsetAndMetadata>();
            starts(plan).forEach((partition, offset) -> {
                if (known.get(partition) == null) {
                    missing.put(partition, new OffsetAndMetadata(offset));
                }
            });
            if (!missing.isEmpty()) {
                admin.alterConsumerGroupOffsets(plan.group(), missing).all().get();
            }
        }
    }

    /**
     * Read again what was appended in the time before the offsets at which the group goes on;
     * nothing where it begins.
     */
    public static void readAgain(Plan plan, long beforeMs, Consumer<Row> each)
            throws ExecutionException, InterruptedException {
        var ends = new HashMap<TopicPartition, Long>();
        try (var admin = Admin.create(plan.kafka())) {
            var known = admin.listConsumerGroupOffsets(plan.group())
                .partitionsToOffsetAndMetadata().get();
            starts(plan).forEach((partition, start) -> {
                var next = known.get(partition);
                if (next != null && next.offset() > start) ends.put(partition, next.offset());
            });
        }
        var settings = plan.kafka();
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (var one : ends.entrySet()) {
                readAgain(consumer, one.getKey(), one.getValue(), beforeMs, record -> {
                    var row = plan.decoded(record.topic(), record.partition(), record.offset(),
                        record.timestamp(), record.value());
                    if (row != null) each.accept(row);
                });
            }
        }
    }

    private static void readAgain(
            KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long end,
            long beforeMs, Consumer<ConsumerRecord<byte[], byte[]>> each) {
        var patientMs = System.currentTimeMillis() + PATIENCE_MS;
        consumer.assign(List.of(partition));
        consumer.seek(partition, end - 1);
        var hasBegun = false;
        while (consumer.position(partition) < end) {  // not, where retention has taken them
            if (System.currentTimeMillis() > patientMs) {
                throw new IllegalStateException(partition + " could not be read again in time");
            }
            for (var record : consumer.poll(POLL).records(partition)) {
                if (!hasBegun) {
                    hasBegun = true;
                    var from = Map.of(partition, record.timestamp() - beforeMs);
                    var at = consumer.offsetsForTimes(from).get(partition).offset();
                    consumer.seek(partition, at);
                    break;
                }
                if (record.offset() < end) each.accept(record);
            }
        }
    }

    /** By topic, the records after those that were read. read: by partition the next offset. */
    public static Map<String, Long> lags(
            Admin admin, Plan plan, Map<TopicPartition, Long> read) throws InterruptedException {
        var wanted = new HashMap<TopicPartition, OffsetSpec>();
        var next = starts(plan);
        next.keySet().forEach(partition -> wanted.put(partition, OffsetSpec.latest()));
        next.putAll(read);
        var found = new HashMap<String, Long>();
        try {
            admin.listOffsets(wanted).all().get().forEach((partition, end) -> found.merge(
                partition.topic(), Math.max(0, end.offset() - next.get(partition)), Long::sum));
        } catch (ExecutionException error) {
            System.err.println("the lag is not known: " + error.getCause());
        }
        return found;
    }

    /** By partition of the topics that are read, the offset to begin at. */
    public static Map<TopicPartition, Long> starts(Plan plan) {
        var found = new HashMap<TopicPartition, Long>();
        plan.startOffsets().forEach((topic, offsets) -> {
            for (var i = 0; i < offsets.length; i++) {
                found.put(new TopicPartition(topic, i), offsets[i]);
            }
        });
        return found;
    }
}
