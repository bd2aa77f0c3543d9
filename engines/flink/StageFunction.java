package tidegauge.flink;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.streaming.api.TimerService;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;

/**
 * A stage with state of its own: one function per stage, keyed by the run and the stage's keys. State
 * is removed by event time, so that it depends on the records alone and not on how fast they are read.
 */
abstract class StageFunction extends KeyedProcessFunction<String, Event, Event> {
    private static final long serialVersionUID = 1;
    /** Timers of a key are together, this part of the time that state is kept apart. */
    private static final int TIMERS = 4;
    protected final Rows rows;
    protected transient long keptMs;
    private transient long timersMs;

    StageFunction(Rows rows) {
        this.rows = rows;
    }

    static StageFunction of(String kind, boolean isCounted, Rows rows) {
        return switch (kind) {
            case "join" -> new Join(rows);
            case "window_join" -> new WindowJoin(rows);
            case "change" -> new Change(rows);
            default -> isCounted ? new CountedWindow(rows) : new ClosedWindow(rows);
        };
    }

    @Override
    public void open(OpenContext context) throws Exception {
        rows.open();
        keptMs = rows.keptMs();
        timersMs = Math.max(1, keptMs / TIMERS);
        begin();
        Progress.opened();
    }

    /** Create the state. */
    abstract void begin();

    /** Have state removed once it has been kept beyond an event time. */
    final void keepBeyond(long eventMs, TimerService timers) {
        var lastMs = eventMs + keptMs;
        timers.registerEventTimeTimer(Math.floorDiv(lastMs + timersMs - 1, timersMs) * timersMs);
    }
}
