package tidegauge;

import java.util.Collection;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.TopicPartition;

/**
 * When each input had passed an event time, in any partition. One per process: windows of every
 * stage and partition are closed by it. Event time is looked at in whole seconds, as windows are.
 */
public final class Closings {
    public static final long GRACE_MS = 1_000;
    public static final long SILENT_MS = 10_000;
    /** Longer than GRACE_MS: a window is published so long after event time has passed its end. */
    private static final long RESTORED_MS = 5_000;
    private static final int KEPT = 100_000;
    private static final Closings OF_PROCESS = new Closings();

    /** By run and input: by event time, when it was first reached; both ascend. */
    private final Map<String, TreeMap<Long, Long>> passed = new ConcurrentHashMap<>();
    private final TreeSet<Long> deadlines = new TreeSet<>();

    public static Closings ofProcess() {
        return OF_PROCESS;
    }

    /**
     * Restore the times of the last seconds before the offsets at which a program goes on. They
     * decide when open windows close, and which records are late.
     */
    public void restore(Plan plan, Map<TopicPartition, Long> offsets) {
        Offsets.readBefore(plan, offsets, RESTORED_MS, this::seen);
    }

    /** Every record of the inputs moves event time, whatever becomes of it. */
    public void seen(Row row) {
        var address = address(row.runId(), row.source);
        var times = passed.computeIfAbsent(address, any -> new TreeMap<>());
        var event = Math.floorDiv(row.eventMs, 1000L) * 1000;
        synchronized (times) {
            var later = times.ceilingEntry(event);
            if (later != null && later.getValue() <= row.appendedMs) return;
            times.put(event, row.appendedMs);
            var before = times.lowerEntry(event);
            while (before != null && before.getValue() >= row.appendedMs) {
                times.remove(before.getKey());
                before = times.lowerEntry(event);
            }
            if (times.size() > KEPT) times.pollFirstEntry();
        }
        synchronized (deadlines) {
            deadlines.add(row.appendedMs + GRACE_MS);
            if (deadlines.size() > KEPT) deadlines.pollFirst();
        }
    }

    /** Whether a window may be due between two times, the later inclusive. */
    public boolean isDue(long afterMs, long untilMs) {
        if (Math.floorDiv(afterMs, 1000L) != Math.floorDiv(untilMs, 1000L)) return true;
        synchronized (deadlines) {
            var next = deadlines.higher(afterMs);
            return next != null && next <= untilMs;
        }
    }

    /** When every input had passed an event time; Long.MAX_VALUE if not yet. */
    public long closedMs(String runId, Collection<String> inputs, long endMs) {
        var found = Long.MIN_VALUE;
        for (var input : inputs) {
            var times = passed.get(address(runId, input));
            if (times == null) return Long.MAX_VALUE;
            synchronized (times) {
                var entry = times.ceilingEntry(endMs);
                if (entry == null) return Long.MAX_VALUE;
                found = Math.max(found, entry.getValue());
            }
        }
        return found;
    }

    private static String address(String runId, String input) {
        return runId + '\u0001' + input;
    }
}
