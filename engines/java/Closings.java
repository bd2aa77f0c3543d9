package tidegauge;

import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;

/**
 * When each input passed an event time, in any partition, and when open windows got their newest
 * records, of any key. One instance per process: it closes the windows of every stage and
 * partition. Event time is rounded down to whole seconds, as windows are.
 */
public final class Closings {
    public static final long GRACE_MS = 1_000;
    /**
     * Longer than GRACE_MS, the time between event time passing a window's end and its publication.
     */
    private static final long RESTORED_MS = 5_000;
    private static final int KEPT = 100_000;
    private static final int WINDOWS = 10_000;
    private static final Closings OF_PROCESS = new Closings();

    /** By run and input: when each event time was first reached; both ascend. */
    private final Map<String, TreeMap<Long, Long>> passed = new ConcurrentHashMap<>();
    private final TreeSet<Long> deadlines = new TreeSet<>();
    /** By stage, run and start, oldest first. */
    private final Map<String, AtomicLong> newest = new LinkedHashMap<>();

    public static Closings ofProcess() {
        return OF_PROCESS;
    }

    /**
     * Restore the times of the last seconds before the offsets at which a program resumes. They
     * decide when open windows close, and which records are late.
     */
    public void restore(Plan plan, Map<TopicPartition, Long> offsets) {
        Offsets.readBefore(plan, offsets, RESTORED_MS, this::seen);
    }

    /** Every record of the inputs advances event time, whether or not it is used. */
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

    /** Whether a window may become due in (afterMs, untilMs]. */
    public boolean isDue(long afterMs, long untilMs) {
        if (Math.floorDiv(afterMs, 1000L) != Math.floorDiv(untilMs, 1000L)) return true;
        synchronized (deadlines) {
            var next = deadlines.higher(afterMs);
            return next != null && next <= untilMs;
        }
    }

    /** When every input passed an event time; Long.MAX_VALUE if not yet. */
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

    /** Whether a row was appended too late for a window of a stage. */
    public boolean isLate(Row row, Stage stage, long start) {
        var closedMs = closedMs(row.runId(), stage.inputs, start + stage.sizeMs);
        return closedMs < Long.MAX_VALUE && row.appendedMs > closedMs + GRACE_MS;
    }

    /** An open window of a stage, of all keys. */
    static class Window {
        final String runId;
        final long start;
        private final Closings closings;
        private final Stage stage;
        private final AtomicLong newestMs;

        Window(Closings closings, Stage stage, String runId, long start) {
            this.closings = closings;
            this.stage = stage;
            this.runId = runId;
            this.start = start;
            newestMs = closings.newestMs(stage.name, runId, start);
        }

        /** Sorts windows by start and run. */
        static String name(String runId, long start) {
            return State.time(start) + runId;
        }

        final void has(Row row) {
            newestMs.accumulateAndGet(row.appendedMs, Math::max);
        }

        /** When its newest record was appended. */
        final long newestMs() {
            return newestMs.get();
        }

        final long dueMs() {
            var passedMs = closings.closedMs(runId, stage.inputs, start + stage.sizeMs);
            return Math.min(passedMs, newestMs() + stage.deadlineMs) + GRACE_MS;
        }
    }

    /** When the newest record of a window was appended: a number that all its keys share. */
    private AtomicLong newestMs(String stage, String runId, long start) {
        var window = address(runId, stage) + '\u0001' + start;
        synchronized (newest) {
            var found = newest.computeIfAbsent(window, any -> new AtomicLong(Long.MIN_VALUE));
            if (newest.size() > WINDOWS) newest.remove(newest.keySet().iterator().next());
            return found;
        }
    }

    private static String address(String runId, String input) {
        return runId + '\u0001' + input;
    }
}
