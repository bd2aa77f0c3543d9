package tidegauge;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.LongSupplier;

/**
 * Sends clocks for a task that reads inputs, in time for every window: everything appended up to
 * the clock's time has been read. A clock is sent before a record that was appended later, or by
 * wall-clock time if no record arrives.
 */
public final class Pacer {
    private static final long IDLE_MS = 100;
    private static final long GONE_MS = 2_000;
    private static final long READ_MS = 40;  // records of different topics are not ordered
    private final int task;
    private final Map<String, long[]> newest = new HashMap<>();
    private long saidMs = Long.MIN_VALUE;
    private long cameMs = Long.MIN_VALUE;
    private long begunMs = Long.MIN_VALUE;

    public Pacer(int task) {
        this.task = task;
    }

    /**
     * Also wait for these sources before sending a clock: a resumed program is behind. Without any
     * record clocks are sent as well, because other tasks wait for them.
     */
    public void expect(Collection<String> sources, long nowMs) {
        begunMs = nowMs;
        cameMs = nowMs;
        for (var source : sources) newest.put(source, new long[] {Long.MIN_VALUE, nowMs});
    }

    /**
     * Call before a record is forwarded. source: its origin; records of one source are ordered by
     * time. A source without records for two seconds in which others had some is not waited for.
     */
    public void before(String source, long appendedMs, long nowMs, Consumer<Row> out) {
        var stalledMs = nowMs - cameMs;
        if (cameMs != Long.MIN_VALUE && stalledMs > IDLE_MS) {
            for (var one : newest.values()) one[1] += stalledMs;
        }
        cameMs = nowMs;
        var last = newest.computeIfAbsent(source, any -> new long[2]);
        last[0] = Math.max(last[0], appendedMs);
        last[1] = nowMs;
        var least = Long.MAX_VALUE;
        for (var one : newest.values()) {
            if (one[1] >= nowMs - GONE_MS) least = Math.min(least, one[0]);
        }
        if (least != Long.MIN_VALUE && isDue(least - READ_MS)) say(least - READ_MS, out);
    }

    /**
     * Call regularly. processedUntil: the time until which everything appended has been processed;
     * Long.MIN_VALUE if it is not known (see Ends).
     */
    public void at(long nowMs, LongSupplier processedUntil, Consumer<Row> out) {
        if (cameMs == Long.MIN_VALUE || nowMs - cameMs < IDLE_MS) return;
        if (begunMs != Long.MIN_VALUE && nowMs - begunMs < GONE_MS) return;
        if (!isDue(nowMs - READ_MS)) return;
        var untilMs = processedUntil.getAsLong();
        if (untilMs != Long.MIN_VALUE && isDue(untilMs - READ_MS)) say(untilMs - READ_MS, out);
    }

    private boolean isDue(long untilMs) {
        if (saidMs == Long.MIN_VALUE) saidMs = untilMs - 1;
        return untilMs > saidMs && Closings.ofProcess().isDue(saidMs, untilMs);
    }

    private void say(long untilMs, Consumer<Row> out) {
        saidMs = untilMs;
        out.accept(Row.clock(task, untilMs));
    }
}
