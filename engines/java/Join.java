package tidegauge;

import java.util.HashMap;
import java.util.List;
import java.util.function.Consumer;

/** The first record of each input with the same keys and event time. */
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
        var rows = state.group(prefix);
        var own = rows.stream().filter(one -> one.source.equals(row.source)).findAny();
        if (own.isPresent()) {
            var isAgain = own.get().id.equals(row.id) && own.get().completes;
            if (isAgain) out.accept(joined(prefix, rows));
            return;
        }
        var isLast = rows.size() + 1 == spec.inputs.size();
        var kept = row.only(spec.kept, isLast);
        state.put(prefix, row.source, kept);
        rows.add(kept);
        if (isLast) out.accept(joined(prefix, rows));
    }

    /** The output for one record of each input. */
    Row joined(String id, List<Row> rows) {
        var columns = new HashMap<>(aggregates(rows));
        columns.put(eventTime, rows.get(0).eventMs);
        return made(rows, id, columns, rows.get(0).eventMs);
    }
}
