package tidegauge.flink;

import org.apache.flink.util.Collector;

/** A window is due when it has as many events as the events themselves announce. */
final class CountedWindow extends StageFunction {
    private static final long serialVersionUID = 1;
    private transient ByTime<Group> groups;
    private transient Schema.Column announced;
    private transient int[] inputs;

    CountedWindow(Rows rows) {
        super(rows);
    }

    @Override
    void begin() {
        groups = new ByTime<>(getRuntimeContext(), "groups", Group.OfGroup.INSTANCE);
        announced = rows.schema.column(rows.stage.completeColumn);
        inputs = rows.inputs();
    }

    @Override
    public void processElement(Event event, Context context, Collector<Event> out)
            throws Exception {
        var stage = rows.stage;
        var newest = rows.newestStart(event);
        for (var start = newest; start > event.eventMs - stage.sizeMs; start -= stage.slideMs) {
            var group = groups.get(start);
            if (group == null) {
                group = rows.empty();
                keepBeyond(start + stage.sizeMs, context.timerService());
            }
            if (group.isPublished || !rows.add(group, event)) continue;
            group.most = Math.max(group.most, (Long) announced.of(event));
            if (isComplete(group)) {
                var row = rows.window(group, start);
                if (row != null) out.collect(row);
                group = Group.PUBLISHED;
            }
            groups.put(start, group);
        }
    }

    private boolean isComplete(Group group) {
        var due = group.most * (rows.stage.sizeMs / rows.stage.everyMs);
        for (var input : inputs) if (group.counts[input] < due) return false;
        return true;
    }

    @Override
    public void onTimer(long timeMs, OnTimerContext context, Collector<Event> out)
            throws Exception {
        groups.removeUntil(timeMs - keptMs - rows.stage.sizeMs);
    }
}
