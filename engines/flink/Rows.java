package tidegauge.flink;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import tidegauge.Plan;
import tidegauge.Stage;

/** Makes the rows of a stage with state. Part of a function: it is opened where that one runs. */
final class Rows implements Serializable {
    private static final long serialVersionUID = 1;
    private final String path;
    private final String name;
    /** Of the events read, and of the rows. */
    final Schema schema;
    final Schema made;
    transient Plan plan;
    transient Stage stage;
    private transient List<Schema.Column> head;
    private transient List<Schema.Column> oncePer;
    private transient Aggregates aggregates;
    private transient List<Schema.Column> changed;
    private transient List<Schema.Column> paired;
    private transient int[] sources;
    private transient int[] needed;
    private transient int inputs;
    private transient int width;

    Rows(Plan plan, Stage stage, Schema schema) {
        path = plan.path;
        name = stage.name;
        this.schema = schema;
        made = Schema.derived(columns(stage));
    }

    private static List<String> columns(Stage stage) {
        var names = new ArrayList<>(stage.keys);
        if (stage.kind.equals("join")) names.add(stage.eventTime);
        else names.addAll(List.of("window_start", "window_end"));
        names.addAll(stage.columns.keySet());
        stage.aggregates.forEach(one -> names.add(one.column()));
        stage.changes.forEach(one -> names.add(one.column()));
        return names;
    }

    /** The run and the columns of the key. */
    static Collection<String> keys(Stage stage) {
        var names = new LinkedHashSet<String>(List.of(Schema.RUN_ID));
        names.addAll(stage.keys);
        return names;
    }

    /** Must be called before anything else; again, it does nothing. */
    Rows open() {
        if (plan != null) return this;
        plan = Plan.of(path);
        stage = plan.stages.get(name);
        var names = List.copyOf(plan.inputs.keySet());
        head = schema.columns(keys(stage));
        oncePer = schema.columns(stage.oncePer);
        aggregates = new Aggregates(stage, plan, schema);
        changed = schema.columns(stage.changes.stream().map(Stage.Change::of).toList());
        paired = stage.columns.values().stream().map(of -> schema.column(of.column())).toList();
        sources = stage.columns.values().stream().mapToInt(of -> names.indexOf(of.input()))
            .toArray();
        inputs = names.size();
        width = made.names(Event.DERIVED).length;
        needed = stage.needed.stream().mapToInt(names::indexOf).toArray();
        return this;
    }

    /** Places of the stage's inputs in the plan. */
    int[] inputs() {
        var names = List.copyOf(plan.inputs.keySet());
        return stage.inputs.stream().mapToInt(names::indexOf).toArray();
    }

    /** How long state is kept beyond the length of a window. */
    long keptMs() {
        return 1000L * plan.number("kept_s");
    }

    /** The newest window of an event; the earlier ones are a slide apart. */
    long newestStart(Event event) {
        return Math.floorDiv(event.eventMs, stage.slideMs) * stage.slideMs;
    }

    /** A window without events; its head is that of the first. */
    Group empty() {
        return new Group(null, aggregates.empty(), new long[inputs],
            stage.isCounted() ? new HashSet<>() : null);
    }

    /** Add an event to a window; false if it counts once and is there already. */
    boolean add(Group group, Event event) {
        if (group.identities != null && !group.identities.add(identity(event))) return false;
        if (group.head == null) group.head = head(event);
        aggregates.add(group.accumulators, event);
        if (event.source >= 0) group.counts[event.source]++;
        else for (var i = 0; i < inputs; i++) group.counts[i]++;
        group.appendedMs = Math.max(group.appendedMs, event.appendedMs);
        return true;
    }

    /** What is counted once. */
    private String identity(Event event) {
        var text = new StringBuilder(32).append(event.source).append('\u0001')
            .append(Math.floorDiv(event.eventMs, stage.everyMs));
        for (var column : oncePer) text.append('\u0001').append(column.of(event));
        return text.toString();
    }

    /** The row of a window; null if an input that the stage uses has no event in it. */
    Event window(Group group, long start) {
        for (var input : needed) if (group.counts[input] == 0) return null;
        var values = begun(group.head, start);
        Aggregates.results(group.accumulators, values, group.head.length + 2);
        return ofWindow(values, start, group.appendedMs);
    }

    /** The row of an event of each input. */
    Event joined(Event... events) {
        var values = begun(head(events[0]));
        var place = head.size();
        values[place] = events[0].eventMs;
        var appendedMs = aggregate(values, place + 1, events);
        return new Event(Event.DERIVED, events[0].eventMs, appendedMs, 0, values);
    }

    /** The row of two events in a window. */
    Event pair(Event one, Event other, long start) {
        var values = begun(head(one), start);
        var place = head.size() + 2;
        for (var i = 0; i < sources.length; i++) {
            var from = one.source == sources[i] ? one : other;
            values[place++] = paired.get(i).of(from);
        }
        return ofWindow(values, start, aggregate(values, place, one, other));
    }

    /** The same row in another window. */
    Event inWindow(Event row, long start) {
        var values = row.values.clone();
        values[head.size()] = start;
        values[head.size() + 1] = start + stage.sizeMs;
        return ofWindow(values, start, row.appendedMs);
    }

    private long aggregate(Object[] values, int place, Event... events) {
        var all = aggregates.empty();
        var appendedMs = Long.MIN_VALUE;
        for (var one : events) {
            aggregates.add(all, one);
            appendedMs = Math.max(appendedMs, one.appendedMs);
        }
        Aggregates.results(all, values, place);
        return appendedMs;
    }

    /** How a window changed from earlier ones: a value for each change of the stage. */
    interface Parts {
        /** The window that starts at a time; null if there is none. */
        Event at(long start) throws Exception;
    }

    Event change(Event newest, long last, long appendedMs, Parts parts) throws Exception {
        var start = last + stage.slideMs - stage.sizeMs;
        var values = begun(head(newest), start);
        for (var i = 0; i < changed.size(); i++) {
            var before = parts.at(last - stage.changes.get(i).back() * stage.slideMs);
            var old = before == null ? null : (Number) changed.get(i).of(before);
            if (old == null || old.doubleValue() == 0) continue;
            var value = ((Number) changed.get(i).of(newest)).doubleValue();
            values[head.size() + 2 + i] = (value - old.doubleValue()) / old.doubleValue();
        }
        return ofWindow(values, start, appendedMs);
    }

    private Object[] head(Event event) {
        var values = new Object[head.size()];
        for (var i = 0; i < values.length; i++) values[i] = head.get(i).of(event);
        return values;
    }

    private Object[] begun(Object[] head) {
        var values = new Object[width];
        System.arraycopy(head, 0, values, 0, head.length);
        return values;
    }

    private Object[] begun(Object[] head, long start) {
        var values = begun(head);
        values[head.length] = start;
        values[head.length + 1] = start + stage.sizeMs;
        return values;
    }

    private Event ofWindow(Object[] values, long start, long appendedMs) {
        return new Event(Event.DERIVED, start + stage.sizeMs - 1, appendedMs, 0, values);
    }
}
