package tidegauge.flink;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.TopicPartition;
import tidegauge.Lines;
import tidegauge.Plan;

/** What the tasks of this process have done, and those of TaskManagers in their own. */
final class Progress {
    /** A line from a TaskManager to the process of the JobManager. */
    static final String EVENT = "tasks";

    private static final AtomicInteger OPENED = new AtomicInteger();
    private static final Map<String, long[]> POSITIONS = new ConcurrentHashMap<>();
    /** Positions that were told. */
    private static final Map<TopicPartition, Long> TOLD = new ConcurrentHashMap<>();

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
        var found = new HashMap<>(TOLD);
        POSITIONS.forEach((topic, positions) -> {
            for (var i = 0; i < positions.length; i++) {
                if (positions[i] > 0) found.put(new TopicPartition(topic, i), positions[i]);
            }
        });
        return found;
    }

    /**
     * A line with what has happened since the last: operators, rows by stage, and the positions
     * that changed, because after a restart another TaskManager may read a partition.
     */
    static Map<String, Object> taken(Plan plan) {
        var rows = new HashMap<String, Long>();
        plan.stages.keySet().forEach(name -> rows.put(name, Lines.counter(name).sumThenReset()));
        var positions = new HashMap<String, Map<Integer, Long>>();
        read().forEach((partition, next) -> {
            if (next.equals(TOLD.put(partition, next))) return;
            positions.computeIfAbsent(partition.topic(), any -> new HashMap<>())
                .put(partition.partition(), next);
        });
        var line = new LinkedHashMap<String, Object>();
        line.put("event", EVENT);
        line.put("opened", OPENED.getAndSet(0));
        line.put("rows", rows);
        line.put("positions", positions);
        return line;
    }

    /** Add such a line; returns whether operators were opened. */
    static boolean add(JsonNode line) {
        var opened = line.get("opened").asInt();
        OPENED.addAndGet(opened);
        line.get("rows").fields().forEachRemaining(
            one -> Lines.counter(one.getKey()).add(one.getValue().asLong()));
        line.get("positions").fields().forEachRemaining(
            topic -> topic.getValue().fields().forEachRemaining(one -> TOLD.put(
                new TopicPartition(topic.getKey(), Integer.parseInt(one.getKey())),
                one.getValue().asLong())));
        return opened > 0;
    }
}
