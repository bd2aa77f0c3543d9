package tidegauge.flink;

import org.apache.flink.util.Collector;

/**
 * Relative changes of the windows of an aggregate from earlier ones. A counted change waits for all of
 * its parts; a closed one uses the parts present when the newest is closed.
 */
final class Change extends StageFunction {
    private static final long serialVersionUID = 1;
    private transient ByTime<Event> parts;
    private transient Schema.Column windowStart;

    Change(Rows rows) {
        super(rows);
    }

    @Override
    void begin() {
        parts = new ByTime<>(getRuntimeContext(), "parts", EventFormat.INSTANCE);
        windowStart = rows.schema.column("window_start");
    }

    @Override
    public void processElement(Event event, Context context, Collector<Event> out)
            throws Exception {
        var stage = rows.stage;
        var newest = (Long) windowStart.of(event);
        parts.put(newest, event);
        keepBeyond(newest + stage.sizeMs, context.timerService());
        if (!stage.isCounted()) {
            out.collect(rows.change(event, newest, event.appendedMs, parts::get));
            return;
        }
        for (var last = newest; last < newest + stage.sizeMs; last += stage.slideMs) {
            if (!isWhole(last)) continue;
            out.collect(rows.change(parts.get(last), last, event.appendedMs, parts::get));
        }
    }

    private boolean isWhole(long last) throws Exception {
        var stage = rows.stage;
        for (var at = last + stage.slideMs - stage.sizeMs; at <= last; at += stage.slideMs) {
            if (parts.get(at) == null) return false;
        }
        return true;
    }

    @Override
    public void onTimer(long timeMs, OnTimerContext context, Collector<Event> out)
            throws Exception {
        parts.removeUntil(timeMs - keptMs - rows.stage.sizeMs);
    }
}
