package tidegauge;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/**
 * A running stage: rows in, rows out, with state supplied by the engine. A repeated row changes
 * nothing, and an output that it completed is made again. An engine that resumes at an offset
 * before its state therefore loses nothing.
 */
public abstract class Step {
    private static final Comparator<Row> IN_ORDER =
        Comparator.<Row>comparingLong(row -> row.appendedMs).thenComparingLong(row -> row.offset);

    protected final Stage spec;
    protected final long keptMs;

    protected Step(Stage spec, long keptMs) {
        this.spec = spec;
        this.keptMs = spec.sizeMs + keptMs;
    }

    /**
     * Parameters of steps. keptMs: how long rows are kept beyond the length of a window. unsureMs:
     * outputs published within this time before the start offset of a resumed program may be lost.
     * keepsRecords: whether closed windows keep their records until they are published, because the
     * state outlives the program.
     */
    public record Setup(long keptMs, long unsureMs, boolean keepsRecords) {}

    /** The step of a stage. */
    public static Step of(Stage spec, Setup setup) {
        var keptMs = setup.keptMs();
        return switch (spec.kind) {
            case "join" -> new Join(spec, keptMs);
            case "window_join" -> new WindowJoin(spec, keptMs);
            case "aggregate" -> aggregate(spec, setup);
            case "change" -> new Change(spec, keptMs);
            default -> new PerRow(spec);
        };
    }

    private static Step aggregate(Stage spec, Setup setup) {
        if (spec.isCounted()) return new Counted(spec, setup.keptMs());
        var isFolded = !setup.keepsRecords() && spec.readsRecords;
        return isFolded ? new Folded(spec, setup, Closings.ofProcess())
            : new Closed(spec, setup, Closings.ofProcess());
    }

    /** The number of rows that it keeps. */
    public long rows(State state) {
        return state.size();
    }

    /** Process a row of what the stage reads, and count it, if the stage accepts it. */
    public final void take(Row row, State state, Consumer<Row> out) {
        if (!spec.takes(row)) return;
        if (!spec.kind.equals("copy")) Lines.count(spec.name);
        add(row, state, out);
    }

    /** Process one row; outputs go to out. */
    public abstract void add(Row row, State state, Consumer<Row> out);

    /** Everything appended up to a time has been read. */
    public void clock(long nowMs, State state, Consumer<Row> out) {}

    /**
     * Whether the stage uses a row: it has the columns of the key, and is a record of one of the
     * stage's inputs or derived from several records.
     */
    protected boolean uses(Row row) {
        return spec.part(row).hasKey() && (row.source.isEmpty() || spec.inputs.contains(row.source));
    }

    /** The columns that the stage computes from rows. */
    protected Map<String, Object> aggregates(List<Row> given) {
        var rows = given;
        if (rows.size() > 1) {
            rows = new ArrayList<>(given);
            rows.sort(IN_ORDER);
        }
        var all = Accumulator.of(spec);
        for (var row : rows) Accumulator.add(all, spec, row);
        return Accumulator.results(all, spec);
    }

    /** Numbers by value, everything else by its text. */
    public static int compare(Object one, Object other) {
        if (one instanceof Long a && other instanceof Long b) return a.compareTo(b);
        if (one instanceof Number a && other instanceof Number b) {
            return Double.compare(a.doubleValue(), b.doubleValue());
        }
        return one.toString().compareTo(other.toString());
    }

    /** The id of the output of a group. */
    protected final String outputId(String ofGroup) {
        return spec.name + "/" + ofGroup;
    }

    /** A row derived from others. */
    protected Row made(List<Row> rows, String id, Map<String, Object> columns, long eventMs) {
        return new Row(
            withKeys(rows.get(0), columns), "", outputId(id), eventMs, newestMs(rows));
    }

    /** The same for a window. */
    protected Row madeOfWindow(List<Row> rows, String id, Map<String, Object> columns, long start) {
        return madeOfWindow(withKeys(rows.get(0), columns), id, start, newestMs(rows));
    }

    private static long newestMs(List<Row> rows) {
        var found = Long.MIN_VALUE;
        for (var row : rows) found = Math.max(found, row.appendedMs);
        return found;
    }

    /** The same with columns that contain those of the key. */
    protected Row madeOfWindow(
            Map<String, Object> columns, String id, long start, long appendedMs) {
        var fields = new HashMap<>(columns);
        fields.put("window_start", start);
        fields.put("window_end", start + spec.sizeMs);
        return new Row(fields, "", outputId(id), start + spec.sizeMs - 1, appendedMs);
    }

    /** Columns and those of the key, which a row has. */
    protected final Map<String, Object> withKeys(Row row, Map<String, Object> columns) {
        var fields = new HashMap<>(columns);
        fields.put("run_id", row.runId());
        for (var name : spec.keys) fields.put(name, row.get(name));
        return fields;
    }

    /** copy, decode, filter, lookup. */
    static final class PerRow extends Step {
        PerRow(Stage spec) {
            super(spec, 0);
        }

        @Override
        public void add(Row row, State state, Consumer<Row> out) {
            for (var condition : spec.where) {
                if (!holds(condition.get("operator").asText(),
                        row.get(condition.get("column").asText()),
                        value(condition.get("value")))) return;
            }
            if (spec.table.isNull()) {
                out.accept(row);
                return;
            }
            var key = String.valueOf(row.get(spec.table.get("key").asText()));
            var entry = spec.table.get("rows").get(key);
            if (entry == null) return;
            var more = new HashMap<String, Object>();
            for (var i = 0; i < entry.size(); i++) {
                more.put(spec.table.get("columns").get(i).asText(), value(entry.get(i)));
            }
            out.accept(row.with(more));
        }
    }

    /** A value of a plan as rows have them. */
    public static Object value(JsonNode given) {
        if (given.isIntegralNumber()) return given.asLong();
        return given.isNumber() ? (Object) given.asDouble() : given.asText();
    }

    /** Whether a condition of a filter holds; never for null. */
    public static boolean holds(String operator, Object found, Object wanted) {
        if (found == null) return false;
        var order = compare(found, wanted);
        return switch (operator) {
            case "<" -> order < 0;
            case "<=" -> order <= 0;
            case ">" -> order > 0;
            case ">=" -> order >= 0;
            case "==" -> order == 0;
            default -> order != 0;
        };
    }
}
