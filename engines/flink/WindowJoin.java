package tidegauge.flink;

import org.apache.flink.util.Collector;

/** Every pair of events of two inputs with the same keys in one window, unless one is late. */
final class WindowJoin extends StageFunction {
    private static final long serialVersionUID = 1;
    private transient ByTime<Events> windows;

    WindowJoin(Rows rows) {
        super(rows);
    }

    @Override
    void begin() {
        windows = new ByTime<>(getRuntimeContext(), "windows", Events.OfEvents.INSTANCE);
    }

    @Override
    public void processElement(Event event, Context context, Collector<Event> out)
            throws Exception {
        var timers = context.timerService();
        var stage = rows.stage;
        var newest = rows.newestStart(event);
        for (var start = newest; start > event.eventMs - stage.sizeMs; start -= stage.slideMs) {
            var last = start + stage.sizeMs - 1;
            if (last <= timers.currentWatermark()) continue;
            var window = windows.get(start);
            if (window == null) {
                window = new Events(0);
                timers.registerEventTimeTimer(last);
            }
            for (var other : window.all) {
                if (other.source != event.source) out.collect(rows.pair(event, other, start));
            }
            window.append(event);
            windows.put(start, window);
        }
    }

    @Override
    public void onTimer(long timeMs, OnTimerContext context, Collector<Event> out)
            throws Exception {
        windows.remove(timeMs + 1 - rows.stage.sizeMs);
    }
}
