package tidegauge.flink;

import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.util.Collector;
import tidegauge.Plan;
import tidegauge.Stage;

/** Every pair of events of two inputs with the same keys in one window, unless one is late. */
final class WindowJoin extends StageFunction {
    private static final long serialVersionUID = 1;
    private transient MapState<Long, Events> windows;
    private transient Aggregates aggregates;
    private transient List<Schema.Column> columns;
    private transient int[] sources;

    WindowJoin(Plan plan, Stage stage, Schema schema) {
        super(plan, stage, schema, madeOf(stage, ofWindow(columns(stage))));
    }

    private static List<String> columns(Stage stage) {
        var names = new ArrayList<String>(stage.columns.keySet());
        names.addAll(aggregated(stage));
        return names;
    }

    @Override
    void begin() {
        windows = getRuntimeContext().getMapState(new MapStateDescriptor<>(
            "windows", LongSerializer.INSTANCE, Events.OfEvents.INSTANCE));
        aggregates = new Aggregates(stage, plan, schema);
        var names = List.copyOf(plan.inputs.keySet());
        columns = stage.columns.values().stream().map(of -> schema.column(of.column())).toList();
        sources = stage.columns.values().stream().mapToInt(of -> names.indexOf(of.input()))
            .toArray();
    }

    @Override
    public void processElement(Event event, Context context, Collector<Event> out)
            throws Exception {
        var timers = context.timerService();
        var newest = newestStart(event);
        for (var start = newest; start > event.eventMs - stage.sizeMs; start -= stage.slideMs) {
            var last = start + stage.sizeMs - 1;
            if (last <= timers.currentWatermark()) continue;
            var window = windows.get(start);
            if (window == null) {
                window = new Events(0);
                timers.registerEventTimeTimer(last);
            }
            for (var other : window.all) {
                if (other.source != event.source) out.collect(pair(event, other, start));
            }
            window.append(event);
            windows.put(start, window);
        }
    }

    private Event pair(Event one, Event other, long start) {
        var head = head(one);
        var values = begun(head, start);
        var place = head.length + 2;
        for (var i = 0; i < sources.length; i++) {
            var from = one.source == sources[i] ? one : other;
            values[place++] = columns.get(i).of(from);
        }
        var all = aggregates.empty();
        aggregates.add(all, one);
        aggregates.add(all, other);
        Aggregates.results(all, values, place);
        return ofWindow(values, start, Math.max(one.appendedMs, other.appendedMs));
    }

    @Override
    public void onTimer(long timeMs, OnTimerContext context, Collector<Event> out)
            throws Exception {
        windows.remove(timeMs + 1 - stage.sizeMs);
    }
}
