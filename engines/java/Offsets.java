package tidegauge;

import java.time.Duration;
import java.util.ArrayList;
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

/** Start offsets of a consumer group. */
public final class Offsets {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long PATIENCE_MS = 30_000;

    private Offsets() {}

    /**
     * Commit the plan's offsets for its group, unless the group has committed offsets, from which
     * it resumes. Returns these for the partitions that it has read from.
     */
    public static Map<TopicPartition, Long> commitFirst(Plan plan)
            throws ExecutionException, InterruptedException {
        var missing = new HashMap<TopicPartition, OffsetAndMetadata>();
        var reached = new HashMap<TopicPartition, Long>();
        try (var admin = Admin.create(plan.kafka())) {
            var known = admin.listConsumerGroupOffsets(plan.group())
                .partitionsToOffsetAndMetadata().get();
            starts(plan).forEach((partition, start) -> {
                var next = known.get(partition);
                if (next == null) missing.put(partition, new OffsetAndMetadata(start));
                else if (next.offset() > start) reached.put(partition, next.offset());
            });
            if (!missing.isEmpty()) {
                admin.alterConsumerGroupOffsets(plan.group(), missing).all().get();
            }
        }
        return reached;
    }

    /** Read what was appended in the last milliseconds before these offsets, by partition. */
    public static void readBefore(
            Plan plan, Map<TopicPartition, Long> ends, long lastMs, Consumer<Row> each) {
        if (ends.isEmpty()) return;
        var settings = plan.kafka();
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            ends.forEach((partition, end) -> {
                consumer.assign(List.of(partition));
                consumer.seek(partition, end - 1);
                var newest = new ArrayList<Long>();
                read(consumer, partition, end, record -> newest.add(record.timestamp()));
                if (newest.isEmpty()) return;  // deleted by retention
                var from = Map.of(partition, newest.get(0) - lastMs);
                consumer.seek(partition, consumer.offsetsForTimes(from).get(partition).offset());
                read(consumer, partition, end, record -> {
                    var row = plan.decoded(record.topic(), record.partition(), record.offset(),
                        record.timestamp(), record.value());
                    if (row != null) each.accept(row);
                });
            });
        }
    }

    /** The records from the consumer's position up to an offset. */
    private static void read(
            KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long end,
            Consumer<ConsumerRecord<byte[], byte[]>> each) {
        var deadlineMs = System.currentTimeMillis() + PATIENCE_MS;
        while (consumer.position(partition) < end) {
            if (System.currentTimeMillis() > deadlineMs) {
                throw new IllegalStateException(
                    partition + " could not be read up to offset " + end
                        + " within " + PATIENCE_MS / 1000 + " s");
            }
            for (var record : consumer.poll(POLL).records(partition)) {
                if (record.offset() < end) each.accept(record);
            }
        }
    }

    /** Unread records by topic. read: next offset by partition. */
    public static Map<String, Long> lags(
            Admin admin, Plan plan, Map<TopicPartition, Long> read) throws InterruptedException {
        var wanted = new HashMap<TopicPartition, OffsetSpec>();
        var next = next(plan, read);
        next.keySet().forEach(partition -> wanted.put(partition, OffsetSpec.latest()));
        var found = new HashMap<String, Long>();
        try {
            admin.listOffsets(wanted).all().get().forEach((partition, end) -> found.merge(
                partition.topic(), Math.max(0, end.offset() - next.get(partition)), Long::sum));
        } catch (ExecutionException error) {
            System.err.println("the lag could not be determined: " + error.getCause());
        }
        return found;
    }

    /** Next offset of every partition: its start offset unless it was read from. */
    public static Map<TopicPartition, Long> next(Plan plan, Map<TopicPartition, Long> read) {
        var found = starts(plan);
        found.putAll(read);
        return found;
    }

    /** Start offset by partition of the topics that are read. */
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
