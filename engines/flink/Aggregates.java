package tidegauge.flink;

import java.util.ArrayList;
import java.util.List;
import tidegauge.Accumulator;
import tidegauge.Plan;
import tidegauge.Stage;

/** The aggregate columns of a stage. */
final class Aggregates {
    private static final int ANY = -2;

    /** A column that an aggregate reads, of the events of a source or of any. */
    private record From(int source, Schema.Column column) {}

    private final List<String> functions = new ArrayList<>();
    private final List<List<From>> read = new ArrayList<>();

    Aggregates(Stage stage, Plan plan, Schema schema) {
        var inputs = List.copyOf(plan.inputs.keySet());
        for (var one : stage.aggregates) {
            functions.add(one.function());
            read.add(one.of().stream().map(of -> new From(
                of.input().isEmpty() ? ANY : inputs.indexOf(of.input()),
                schema.column(of.column()))).toList());
        }
    }

    Accumulator[] empty() {
        var all = new Accumulator[functions.size()];
        for (var i = 0; i < all.length; i++) all[i] = new Accumulator(functions.get(i));
        return all;
    }

    void add(Accumulator[] all, Event event) {
        for (var i = 0; i < all.length; i++) {
            for (var from : read.get(i)) {
                var isRead = from.source == ANY || event.source == Event.DERIVED
                    || event.source == from.source;
                var value = isRead ? from.column.of(event) : null;
                if (value != null) all[i].add(value, event.appendedMs, event.offset);
            }
        }
    }

    /** Write the results into values, from a place on. */
    static void results(Accumulator[] all, Object[] values, int place) {
        for (var i = 0; i < all.length; i++) values[place + i] = all[i].result();
    }
}
