package tidegauge;

import java.util.HashMap;
import java.util.List;
import java.util.function.Consumer;

/**
 * Every pair of records of two inputs with the same keys in one window, unless one of them is late.
 */
final class WindowJoin extends Step {
    WindowJoin(Stage spec, long keptMs) {
        super(spec, keptMs);
    }

    @Override
    public void add(Row row, State state, Consumer<Row> out) {
        if (!uses(row)) return;
        state.expire(row.appendedMs, keptMs);
        var own = spec.narrow(row);
        for (var start : spec.starts(row.eventMs)) {
            if (Closings.ofProcess().isLate(row, spec, start)) continue;
            var prefix = State.prefix(start, spec, row);
            for (var other : state.group(prefix)) {
                if (!other.source.equals(row.source)) out.accept(pair(spec, own, other, start));
            }
            state.put(prefix, row.id(), own);
        }
    }

    /** The output of a pair in one window; its id does not depend on which of the two came last. */
    static Row pair(Stage spec, Row one, Row other, long start) {
        var columns = new HashMap<String, Object>();
        spec.columns.forEach((name, of) -> {
            var from = of.input().equals(one.source) ? one : other;
            columns.put(name, from.get(of.column()));
        });
        var step = new WindowJoin(spec, 0);
        var pair = List.of(one, other);
        columns.putAll(step.aggregates(pair));
        var ids = List.of(one.id(), other.id()).stream().sorted().toList();
        var id = ids.get(0) + "&" + ids.get(1) + "@" + start;
        return step.madeOfWindow(pair, id, columns, start);
    }
}
