package tidegauge.flink;

import org.apache.flink.util.Collector;

/** The first record of each input with the same keys and event time. */
final class Join extends StageFunction {
    private static final long serialVersionUID = 1;
    private transient ByTime<Events> groups;
    private transient int[] places;
    private transient int inputs;

    Join(Rows rows) {
        super(rows);
    }

    @Override
    void begin() {
        groups = new ByTime<>(getRuntimeContext(), "groups", Events.OfEvents.INSTANCE);
        places = new int[rows.plan.inputs.size()];
        inputs = 0;
        for (var place : rows.inputs()) places[place] = inputs++;
    }

    @Override
    public void processElement(Event event, Context context, Collector<Event> out)
            throws Exception {
        var group = groups.get(event.eventMs);
        if (group == null) {
            group = new Events(inputs);
            keepBeyond(event.eventMs, context.timerService());
        }
        var place = places[event.source];
        if (group.isPublished || group.all[place] != null) return;
        group.all[place] = event;
        if (isWhole(group)) {
            out.collect(rows.joined(group.all));
            group = Events.PUBLISHED;
        }
        groups.put(event.eventMs, group);
    }

    private static boolean isWhole(Events group) {
        for (var one : group.all) if (one == null) return false;
        return true;
    }

    @Override
    public void onTimer(long timeMs, OnTimerContext context, Collector<Event> out)
            throws Exception {
        groups.removeUntil(timeMs - keptMs);
    }
}
