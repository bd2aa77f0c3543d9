package tidegauge.flink;

import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.util.Collector;
import tidegauge.Plan;
import tidegauge.Stage;

/** The first record of each input with the same keys and event time. */
final class Join extends StageFunction {
    private static final long serialVersionUID = 1;
    private transient MapState<Long, Events> groups;
    private transient Aggregates aggregates;
    private transient int[] places;
    private transient int inputs;

    Join(Plan plan, Stage stage, Schema schema) {
        super(plan, stage, schema, madeOf(stage, columns(stage)));
    }

    private static List<String> columns(Stage stage) {
        var names = new ArrayList<String>(List.of(stage.eventTime));
        names.addAll(aggregated(stage));
        return names;
    }

    @Override
    void begin() {
        groups = getRuntimeContext().getMapState(new MapStateDescriptor<>(
            "groups", LongSerializer.INSTANCE, Events.OfEvents.INSTANCE));
        aggregates = new Aggregates(stage, plan, schema);
        var names = List.copyOf(plan.inputs.keySet());
        places = new int[names.size()];
        inputs = 0;
        for (var name : stage.inputs) places[names.indexOf(name)] = inputs++;
    }

    @Override
    public void processElement(Event event, Context context, Collector<Event> out)
            throws Exception {
        var group = groups.get(event.eventMs);
        if (group == null) {
            group = new Events(inputs);
            context.timerService().registerEventTimeTimer(event.eventMs + keptMs);
        }
        var place = places[event.source];
        if (group.isPublished || group.all[place] != null) return;
        group.all[place] = event;
        if (isWhole(group)) {
            out.collect(joined(group.all));
            group = new Events(0);
            group.isPublished = true;
        }
        groups.put(event.eventMs, group);
    }

    private static boolean isWhole(Events group) {
        for (var one : group.all) if (one == null) return false;
        return true;
    }

    private Event joined(Event[] events) {
        var head = head(events[0]);
        var values = begun(head);
        values[head.length] = events[0].eventMs;
        var all = aggregates.empty();
        var appendedMs = Long.MIN_VALUE;
        for (var one : events) {
            aggregates.add(all, one);
            appendedMs = Math.max(appendedMs, one.appendedMs);
        }
        Aggregates.results(all, values, head.length + 1);
        return new Event(Event.DERIVED, events[0].eventMs, appendedMs, 0, values);
    }

    @Override
    public void onTimer(long timeMs, OnTimerContext context, Collector<Event> out)
            throws Exception {
        groups.remove(timeMs - keptMs);
    }
}
