package tidegauge.flink;

import org.apache.flink.streaming.api.TimeDomain;
import org.apache.flink.util.Collector;

/**
 * A window is due when the watermark has passed its end, and at the latest one deadline after its
 * newest event arrived. Later events are dropped.
 */
final class ClosedWindow extends StageFunction {
    private static final long serialVersionUID = 1;
    private transient ByTime<Group> groups;

    ClosedWindow(Rows rows) {
        super(rows);
    }

    @Override
    void begin() {
        groups = new ByTime<>(getRuntimeContext(), "groups", Group.OfGroup.INSTANCE);
    }

    @Override
    public void processElement(Event event, Context context, Collector<Event> out)
            throws Exception {
        var stage = rows.stage;
        var timers = context.timerService();
        var now = timers.currentProcessingTime();
        var newest = rows.newestStart(event);
        for (var start = newest; start > event.eventMs - stage.sizeMs; start -= stage.slideMs) {
            var last = start + stage.sizeMs - 1;
            if (last <= timers.currentWatermark()) continue;
            var group = groups.get(start);
            if (group == null) {
                group = rows.empty();
                timers.registerEventTimeTimer(last);
                timers.registerProcessingTimeTimer(now + stage.deadlineMs);
            }
            if (group.isPublished) continue;
            rows.add(group, event);
            group.touchedMs = now;
            groups.put(start, group);
        }
    }

    @Override
    public void onTimer(long timeMs, OnTimerContext context, Collector<Event> out)
            throws Exception {
        if (context.timeDomain() == TimeDomain.PROCESSING_TIME) {
            publishSilent(timeMs, context, out);
            return;
        }
        var start = timeMs + 1 - rows.stage.sizeMs;
        var group = groups.get(start);
        groups.remove(start);
        if (group != null) publish(group, start, out);
    }

    /** Publish the windows without an event for a deadline; look at the others again later. */
    private void publishSilent(long nowMs, OnTimerContext context, Collector<Event> out)
            throws Exception {
        var nextMs = Long.MAX_VALUE;
        for (var entry : groups.all().entrySet()) {
            var dueMs = entry.getValue().touchedMs + rows.stage.deadlineMs;
            if (entry.getValue().isPublished) continue;
            if (dueMs > nowMs) {
                nextMs = Math.min(nextMs, dueMs);
                continue;
            }
            publish(entry.getValue(), entry.getKey(), out);
            groups.put(entry.getKey(), Group.PUBLISHED);
        }
        if (nextMs < Long.MAX_VALUE) context.timerService().registerProcessingTimeTimer(nextMs);
    }

    private void publish(Group group, long start, Collector<Event> out) {
        var output = group.isPublished ? null : rows.window(group, start);
        if (output != null) out.collect(output);
    }
}
