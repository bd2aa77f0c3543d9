package tidegauge.flink;

import java.util.List;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.util.Collector;
import tidegauge.Plan;
import tidegauge.Stage;

/**
 * Relative changes of the windows of an aggregate from earlier ones. A counted change waits for all of
 * its parts; a closed one uses the parts present when the newest is closed.
 */
final class Change extends StageFunction {
    private static final long serialVersionUID = 1;
    private transient MapState<Long, Event> parts;
    private transient Schema.Column windowStart;
    private transient List<Schema.Column> columns;

    Change(Plan plan, Stage stage, Schema schema) {
        super(plan, stage, schema,
            madeOf(stage, ofWindow(stage.changes.stream().map(Stage.Change::column).toList())));
    }

    @Override
    void begin() {
        parts = getRuntimeContext().getMapState(new MapStateDescriptor<>(
            "parts", LongSerializer.INSTANCE, EventFormat.INSTANCE));
        windowStart = schema.column("window_start");
        columns = schema.columns(stage.changes.stream().map(Stage.Change::of).toList());
    }

    @Override
    public void processElement(Event event, Context context, Collector<Event> out)
            throws Exception {
        var newest = (Long) windowStart.of(event);
        parts.put(newest, event);
        context.timerService().registerEventTimeTimer(newest + stage.sizeMs + keptMs);
        if (!stage.isCounted()) {
            out.collect(change(event, newest, event.appendedMs));
            return;
        }
        for (var last = newest; last < newest + stage.sizeMs; last += stage.slideMs) {
            if (isWhole(last)) {
                out.collect(change(parts.get(last), last, event.appendedMs));
            }
        }
    }

    private boolean isWhole(long last) throws Exception {
        for (var at = last + stage.slideMs - stage.sizeMs; at <= last; at += stage.slideMs) {
            if (!parts.contains(at)) return false;
        }
        return true;
    }

    private Event change(Event newest, long last, long appendedMs) throws Exception {
        var start = last + stage.slideMs - stage.sizeMs;
        var head = head(newest);
        var values = begun(head, start);
        for (var i = 0; i < columns.size(); i++) {
            var before = parts.get(last - stage.changes.get(i).back() * stage.slideMs);
            var old = before == null ? null : (Number) columns.get(i).of(before);
            if (old == null || old.doubleValue() == 0) continue;
            var value = ((Number) columns.get(i).of(newest)).doubleValue();
            values[head.length + 2 + i] = (value - old.doubleValue()) / old.doubleValue();
        }
        return ofWindow(values, start, appendedMs);
    }

    @Override
    public void onTimer(long timeMs, OnTimerContext context, Collector<Event> out)
            throws Exception {
        parts.remove(timeMs - keptMs - stage.sizeMs);
    }
}
