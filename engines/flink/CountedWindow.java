package tidegauge.flink;

import java.util.List;
import org.apache.flink.util.Collector;
import tidegauge.Plan;
import tidegauge.Stage;

/** A window is due when it has as many events as the events themselves announce. */
final class CountedWindow extends WindowStage {
    private static final long serialVersionUID = 1;
    private transient List<Schema.Column> oncePer;
    private transient Schema.Column announced;
    private transient int[] inputs;

    CountedWindow(Plan plan, Stage stage, Schema schema) {
        super(plan, stage, schema);
    }

    @Override
    void begin() {
        super.begin();
        oncePer = schema.columns(stage.oncePer);
        announced = schema.column(stage.completeColumn);
        var names = List.copyOf(plan.inputs.keySet());
        inputs = stage.inputs.stream().mapToInt(names::indexOf).toArray();
    }

    @Override
    public void processElement(Event event, Context context, Collector<Event> out)
            throws Exception {
        var identity = identity(event);
        var newest = newestStart(event);
        for (var start = newest; start > event.eventMs - stage.sizeMs; start -= stage.slideMs) {
            var group = groups.get(start);
            if (group == null) {
                group = empty(event, true);
                context.timerService().registerEventTimeTimer(start + stage.sizeMs + keptMs);
            }
            if (group.isPublished || !group.identities.add(identity)) continue;
            add(group, event);
            group.most = Math.max(group.most, (Long) announced.of(event));
            if (isComplete(group)) {
                var output = made(group, start);
                if (output != null) out.collect(output);
                group = Group.published();
            }
            groups.put(start, group);
        }
    }

    /** What is counted once. */
    private String identity(Event event) {
        var text = new StringBuilder(32).append(event.source).append('\u0001')
            .append(Math.floorDiv(event.eventMs, stage.everyMs));
        for (var column : oncePer) text.append('\u0001').append(column.of(event));
        return text.toString();
    }

    private boolean isComplete(Group group) {
        var due = group.most * (stage.sizeMs / stage.everyMs);
        for (var input : inputs) if (group.counts[input] < due) return false;
        return true;
    }

    @Override
    public void onTimer(long timeMs, OnTimerContext context, Collector<Event> out)
            throws Exception {
        groups.remove(timeMs - keptMs - stage.sizeMs);
    }
}
