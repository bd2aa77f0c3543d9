package tidegauge.flink;

import java.io.Serializable;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;

/** The columns of the events of a stream, by their source. */
final class Schema implements Serializable {
    private static final long serialVersionUID = 1;
    static final String RUN_ID = "run_id";

    private final HashMap<Integer, String[]> columns = new HashMap<>();

    /** The place of a column in the events of each source. */
    static final class Column implements Serializable {
        private static final long serialVersionUID = 1;
        private final int[] places;

        private Column(int[] places) {
            this.places = places;
        }

        /** The value; null if events of this source do not have the column. */
        Object of(Event event) {
            var place = places[event.source + 1];
            return place < 0 ? null : event.values[place];
        }
    }

    private Schema(Map<Integer, String[]> columns) {
        this.columns.putAll(columns);
    }

    static Schema of(int source, Collection<String> names) {
        return new Schema(Map.of(source, names.toArray(String[]::new)));
    }

    /** The columns of derived events: the run, and these. */
    static Schema derived(Collection<String> names) {
        var all = new LinkedHashSet<String>(List.of(RUN_ID));
        all.addAll(names);
        return of(Event.DERIVED, all);
    }

    /** Of two streams together. */
    Schema and(Schema other) {
        var all = new HashMap<>(columns);
        all.putAll(other.columns);
        return new Schema(all);
    }

    String[] names(int source) {
        return columns.get(source);
    }

    boolean has(int source, Collection<String> names) {
        return Arrays.asList(columns.get(source)).containsAll(names);
    }

    Column column(String name) {
        var most = columns.keySet().stream().mapToInt(Integer::intValue).max().orElse(0);
        var places = new int[most + 2];
        Arrays.fill(places, -1);
        columns.forEach(
            (source, names) -> places[source + 1] = Arrays.asList(names).lastIndexOf(name));
        return new Column(places);
    }

    List<Column> columns(Collection<String> names) {
        return names.stream().map(this::column).toList();
    }
}
