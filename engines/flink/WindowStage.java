package tidegauge.flink;

import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import tidegauge.Plan;
import tidegauge.Stage;

/** An aggregate over windows: a group per window, aggregated as events arrive. */
abstract class WindowStage extends StageFunction {
    private static final long serialVersionUID = 1;
    protected transient MapState<Long, Group> groups;
    private transient Aggregates aggregates;
    private transient Set<Integer> needed;
    private transient int inputs;

    WindowStage(Plan plan, Stage stage, Schema schema) {
        super(plan, stage, schema, madeOf(stage, ofWindow(aggregated(stage))));
    }

    @Override
    void begin() {
        groups = getRuntimeContext().getMapState(new MapStateDescriptor<>(
            "groups", LongSerializer.INSTANCE, Group.OfGroup.INSTANCE));
        aggregates = new Aggregates(stage, plan, schema);
        var names = List.copyOf(plan.inputs.keySet());
        inputs = names.size();
        needed = new LinkedHashSet<>();
        stage.aggregates.forEach(each -> each.of().forEach(of -> {
            if (!of.input().isEmpty()) needed.add(names.indexOf(of.input()));
        }));
    }

    final Group empty(Event event, boolean countsOnce) {
        return new Group(head(event), aggregates.empty(), new long[inputs],
            countsOnce ? new HashSet<>() : null);
    }

    final void add(Group group, Event event) {
        aggregates.add(group.accumulators, event);
        if (event.source >= 0) group.counts[event.source]++;
        else for (var i = 0; i < inputs; i++) group.counts[i]++;
        group.appendedMs = Math.max(group.appendedMs, event.appendedMs);
    }

    /** The output of a window; null if an input that the stage uses has no event in it. */
    final Event made(Group group, long start) {
        for (var input : needed) if (group.counts[input] == 0) return null;
        var values = begun(group.head, start);
        Aggregates.results(group.accumulators, values, group.head.length + 2);
        return ofWindow(values, start, group.appendedMs);
    }
}
