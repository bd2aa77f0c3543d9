package tidegauge;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** The offsets at which a consumer group begins. */
public final class Offsets {
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
