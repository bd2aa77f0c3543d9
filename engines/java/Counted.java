package tidegauge;

import java.util.List;
import java.util.function.Consumer;

/** A window is due when all its records are present: the records contain the expected number. */
final class Counted extends Step {
    Counted(Stage spec, long keptMs) {
        super(spec, keptMs);
    }

    @Override
    public void add(Row row, State state, Consumer<Row> out) {
        if (!uses(row)) return;
        state.expire(row.appendedMs, keptMs);
        spec.starts(row.eventMs).forEach(start -> addTo(start, row, state, out));
    }

    /** The same for one of the row's windows. */
    void addTo(long start, Row row, State state, Consumer<Row> out) {
        var prefix = State.prefix(start, spec, row);
        var name = identity(spec, row);
        var rows = state.group(prefix);
        var before = state.get(prefix, name);
        if (before == null && rows.stream().noneMatch(one -> one.completes)) {
            rows.add(row);
            var isLast = isComplete(spec, rows);
            state.put(prefix, name, row.only(spec.kept, isLast));
            if (isLast) publish(prefix, rows, start, out);
        } else if (before != null && before.completes && before.id.equals(row.id)) {
            publish(prefix, rows, start, out);
        }
    }

    private void publish(String id, List<Row> rows, long start, Consumer<Row> out) {
        out.accept(madeOfWindow(rows, id, aggregates(rows), start));
    }

    /** Identity of a row that is counted once. */
    static String identity(Stage spec, Row row) {
        var text = new StringBuilder(row.source);
        text.append('\u0001').append(Math.floorDiv(row.eventMs, spec.everyMs));
        for (var name : spec.oncePer) text.append('\u0001').append(row.get(name));
        return text.toString();
    }

    static boolean isComplete(Stage spec, List<Row> rows) {
        var most = rows.stream().mapToLong(row -> (Long) row.get(spec.completeColumn)).max();
        var due = most.getAsLong() * (spec.sizeMs / spec.everyMs);
        return spec.inputs.stream().allMatch(
            name -> rows.stream().filter(row -> row.isOf(name)).count() >= due);
    }
}
