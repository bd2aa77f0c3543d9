package tidegauge;

import java.util.HashMap;
import java.util.List;
import java.util.function.Consumer;

/**
 * Relative changes of the windows of an aggregate against earlier ones. A counted change waits for
 * all of its parts; a closed one uses the parts present when the newest is closed.
 */
final class Change extends Step {
    Change(Stage spec, long keptMs) {
        super(spec, keptMs);
    }

    @Override
    public void add(Row row, State state, Consumer<Row> out) {
        state.expire(row.appendedMs, keptMs);
        var newest = (Long) row.get("window_start");
        state.put(State.prefix(newest, spec, row), "", spec.narrow(row));
        if (!spec.isCounted()) {
            publish(row, newest, state, out);
            return;
        }
        for (var last = newest; last < newest + spec.sizeMs; last += spec.slideMs) {
            if (isWhole(row, last, state)) publish(row, last, state, out);
        }
    }

    private boolean isWhole(Row row, long last, State state) {
        for (var at = last + spec.slideMs - spec.sizeMs; at <= last; at += spec.slideMs) {
            if (state.get(State.prefix(at, spec, row), "") == null) return false;
        }
        return true;
    }

    private void publish(Row row, long last, State state, Consumer<Row> out) {
        var end = last + spec.slideMs;
        var newest = (Row) state.get(State.prefix(last, spec, row), "");
        var columns = new HashMap<String, Object>();
        for (var one : spec.changes) {
            var at = last - one.back() * spec.slideMs;
            var before = (Row) state.get(State.prefix(at, spec, row), "");
            var old = before == null ? null : (Number) before.get(one.of());
            var value = ((Number) newest.get(one.of())).doubleValue();
            var isNull = old == null || old.doubleValue() == 0;
            columns.put(one.column(),
                isNull ? null : (value - old.doubleValue()) / old.doubleValue());
        }
        var id = State.prefix(last, spec, row);
        out.accept(madeOfWindow(List.of(row), id, columns, end - spec.sizeMs));
    }
}
