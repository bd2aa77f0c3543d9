package tidegauge;

import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;

/**
 * A window is closed when event time has passed its end in every input, and at the latest one
 * deadline after the newest of its records, over all keys. It is due one second later, once
 * everything appended until then has been read.
 */
final class Closed extends Step {
    private static final String PUBLISHED = "\u0000published";

    /** A window. keys: its open groups, each with when it was published before a restart. */
    private static final class Open extends Closings.Window {
        final TreeMap<String, Long> keys = new TreeMap<>();
        boolean isRestored;

        Open(Closings closings, Stage stage, String runId, long start) {
            super(closings, stage, runId, start);
        }
    }

    private final Closings closings;
    private final Setup setup;
    /** By start and run. */
    private TreeMap<String, Open> open;
    private boolean hasBegun;

    Closed(Stage spec, Setup setup, Closings closings) {
        super(spec, keptMs(spec, setup));
        this.setup = setup;
        this.closings = closings;
    }

    /** How long rows are kept: a late one may keep its window open for a deadline more. */
    static long keptMs(Stage spec, Setup setup) {
        return Math.max(setup.keptMs(), 2 * spec.deadlineMs + Closings.GRACE_MS);
    }

    @Override
    public void add(Row row, State state, Consumer<Row> out) {
        if (!uses(row)) return;
        restore(state);
        state.expire(row.appendedMs, keptMs);
        for (var start : spec.starts(row.eventMs)) {
            var prefix = State.prefix(start, spec, row);
            var isLate = closings.isLate(row, spec, start);
            if (isLate || state.get(prefix, PUBLISHED) != null) continue;
            state.put(prefix, row.id(), spec.narrow(row));
            note(prefix, start, row);
        }
    }

    private void note(String prefix, long start, Row row) {
        var window = open.computeIfAbsent(Closings.Window.name(row.runId(), start),
            any -> new Open(closings, spec, row.runId(), start));
        if (row.id().equals(PUBLISHED)) {
            window.keys.put(prefix, row.appendedMs);
            window.isRestored = true;
        } else {
            window.keys.putIfAbsent(prefix, Long.MAX_VALUE);
            window.has(row);
        }
    }

    /** The windows in a state, including those that were published before the restart. */
    private void restore(State state) {
        if (open != null) return;
        open = new TreeMap<>();
        for (var one : state.all()) {
            var key = one.getKey();
            note(State.prefixOf(key), State.timeOf(key), (Row) one.getValue());
        }
    }

    @Override
    public void clock(long now, State state, Consumer<Row> out) {
        restore(state);
        if (!hasBegun) begin(now);
        for (var all = open.values().iterator(); all.hasNext();) {
            var window = all.next();
            var dueMs = window.dueMs();
            if (dueMs > now && !window.isRestored) continue;
            for (var keys = window.keys.entrySet().iterator(); keys.hasNext();) {
                var key = keys.next();
                var prefix = key.getKey();
                var ofKeyMs = Math.min(dueMs, key.getValue());
                if (ofKeyMs > now) continue;
                keys.remove();
                publish(prefix, window, ofKeyMs, now, state, out);
            }
            if (window.keys.isEmpty()) all.remove();
        }
    }

    /** Outputs published well before the start offset have arrived. */
    private void begin(long now) {
        hasBegun = true;
        open.values().forEach(window -> window.keys.values().removeIf(
            dueMs -> dueMs < Long.MAX_VALUE && dueMs < now - setup.unsureMs()));
    }

    private void publish(String prefix, Open window, long dueMs, long now, State state,
            Consumer<Row> out) {
        var rows = state.group(prefix);
        rows.removeIf(row -> row.id().equals(PUBLISHED) || row.appendedMs > dueMs);
        if (rows.isEmpty()) return;
        Map<String, Object> runId = Map.of("run_id", window.runId);
        state.put(prefix, PUBLISHED, new Row(runId, "", PUBLISHED, window.start, now));
        // An input that the stage uses must not be missing.
        var isWhole = spec.needed.stream().allMatch(
            name -> rows.stream().anyMatch(row -> row.isOf(name)));
        if (isWhole) out.accept(madeOfWindow(rows, prefix, aggregates(rows), window.start));
    }
}
