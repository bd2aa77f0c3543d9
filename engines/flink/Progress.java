package tidegauge.flink;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.TopicPartition;
import tidegauge.Plan;

/** What the tasks of this process have done. */
final class Progress {
    private static final AtomicInteger OPENED = new AtomicInteger();
    private static final Map<String, long[]> POSITIONS = new ConcurrentHashMap<>();

    private Progress() {}

    /** Called by every operator before it gets events. */
    static void opened() {
        OPENED.incrementAndGet();
    }

    static int operators() {
        return OPENED.get();
    }

    /** Next offsets by partition of a topic; 0 before the first record. */
    static long[] positions(Plan plan, String topic) {
        return POSITIONS.computeIfAbsent(
            topic, any -> new long[plan.startOffsets().get(topic).length]);
    }

    /** Next offsets of the partitions that were read from. */
    static Map<TopicPartition, Long> read() {
        var found = new HashMap<TopicPartition, Long>();
        POSITIONS.forEach((topic, positions) -> {
            for (var i = 0; i < positions.length; i++) {
                if (positions[i] > 0) found.put(new TopicPartition(topic, i), positions[i]);
            }
        });
        return found;
    }
}
