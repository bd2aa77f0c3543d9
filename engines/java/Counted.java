package tidegauge;

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
        var found = (CountedWindow) state.get(prefix, "");
        var window = found == null ? CountedWindow.of(spec) : found;
        var output = window.output();
        if (output != null) {
            if (output.isAgain(row)) out.accept(output.output(outputId(prefix)));
            return;
        }
        if (!window.add(row, spec)) return;
        if (window.isComplete(spec)) {
            var columns = withKeys(row, window.columns(spec));
            var made = madeOfWindow(columns, prefix, start, window.appendedMs());
            window.publish(made, row);
            out.accept(made);
        }
        if (found == null) state.put(prefix, "", window);
        else state.replace(prefix, "", window);
    }
}
