package tidegauge.flink;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import tidegauge.Plan;
import tidegauge.Stage;

/**
 * A stage with state: one function per stage, keyed by the run and the stage's keys. State is removed
 * by event time, so that it depends on the records alone and not on how fast they are read.
 */
abstract class StageFunction extends KeyedProcessFunction<String, Event, Event> {
    private static final long serialVersionUID = 1;
    private final String path;
    private final String name;
    protected final Schema schema;
    protected final Schema made;
    protected transient Plan plan;
    protected transient Stage stage;
    /** How long state is kept beyond the length of a window. */
    protected transient long keptMs;
    private transient List<Schema.Column> head;

    /** schema: of the events read. */
    StageFunction(Plan plan, Stage stage, Schema schema, Schema made) {
        path = plan.path;
        name = stage.name;
        this.schema = schema;
        this.made = made;
    }

    static StageFunction of(Plan plan, Stage stage, Schema schema) {
        return switch (stage.kind) {
            case "join" -> new Join(plan, stage, schema);
            case "window_join" -> new WindowJoin(plan, stage, schema);
            case "change" -> new Change(plan, stage, schema);
            default -> stage.isCounted()
                ? new CountedWindow(plan, stage, schema) : new ClosedWindow(plan, stage, schema);
        };
    }

    @Override
    public void open(OpenContext context) throws Exception {
        plan = Plan.of(path);
        stage = plan.stages.get(name);
        keptMs = 1000L * plan.number("kept_s");
        head = schema.columns(keys(stage));
        begin();
        Progress.opened();
    }

    /** Create the state. */
    abstract void begin();

    /** The run and the columns of the key. */
    static Collection<String> keys(Stage stage) {
        var names = new LinkedHashSet<String>(List.of(Schema.RUN_ID));
        names.addAll(stage.keys);
        return names;
    }

    /** The values of these columns. */
    final Object[] head(Event event) {
        var values = new Object[head.size()];
        for (var i = 0; i < values.length; i++) values[i] = head.get(i).of(event);
        return values;
    }

    /** The schema of a stage's rows: run, keys, more columns. */
    static Schema madeOf(Stage stage, Collection<String> more) {
        var names = new ArrayList<>(stage.keys);
        names.addAll(more);
        return Schema.derived(names);
    }

    /** The columns of a window, and more. */
    static List<String> ofWindow(Collection<String> more) {
        var names = new ArrayList<>(List.of("window_start", "window_end"));
        names.addAll(more);
        return names;
    }

    static List<String> aggregated(Stage stage) {
        return stage.aggregates.stream().map(Stage.Aggregate::column).toList();
    }

    /** Values of a derived row that begin with a head; the rest is left empty. */
    final Object[] begun(Object[] head) {
        var values = new Object[made.names(Event.DERIVED).length];
        System.arraycopy(head, 0, values, 0, head.length);
        return values;
    }

    /** The same of a window. */
    final Object[] begun(Object[] head, long start) {
        var values = begun(head);
        values[head.length] = start;
        values[head.length + 1] = start + stage.sizeMs;
        return values;
    }

    final Event ofWindow(Object[] values, long start, long appendedMs) {
        return new Event(Event.DERIVED, start + stage.sizeMs - 1, appendedMs, 0, values);
    }

    /** The newest window of an event; the earlier ones are a slide apart. */
    final long newestStart(Event event) {
        return Math.floorDiv(event.eventMs, stage.slideMs) * stage.slideMs;
    }
}
