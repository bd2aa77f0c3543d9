package tidegauge;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.function.Consumer;

/**
 * The first record of each input with the same keys and event time. A group is stored under a name
 * for each of its records, "" first, and once it is complete, as its output alone.
 */
final class Join extends Step {
    private final String eventTime;

    Join(Stage spec, long keptMs) {
        super(spec, keptMs);
        eventTime = spec.eventTime;
    }

    @Override
    public void add(Row row, State state, Consumer<Row> out) {
        if (!uses(row)) return;
        state.expire(row.appendedMs, keptMs);
        var prefix = State.prefix(row.eventMs, spec, row);
        var rows = new ArrayList<Row>(spec.inputs.size());
        for (var place = 0; place < spec.inputs.size() - 1; place++) {
            var one = (Row) state.get(prefix, name(place));
            if (one == null) break;
            if (one.completes) {
                if (one.isAgain(row)) out.accept(one.output(outputId(prefix)));
                return;
            }
            if (one.source.equals(row.source)) return;
            rows.add(one);
        }
        if (rows.size() + 1 < spec.inputs.size()) {
            state.put(prefix, name(rows.size()), spec.narrow(row));
            return;
        }
        rows.add(row);
        var made = joined(prefix, rows);
        for (var place = 1; place < rows.size() - 1; place++) state.remove(prefix, name(place));
        state.replace(prefix, "", made.completedBy(row));
        out.accept(made);
    }

    private static String name(int place) {
        return place == 0 ? "" : String.valueOf(place);
    }

    /** The output for one record of each input. */
    Row joined(String id, List<Row> rows) {
        var columns = new HashMap<>(aggregates(rows));
        columns.put(eventTime, rows.get(0).eventMs);
        return made(rows, id, columns, rows.get(0).eventMs);
    }
}
