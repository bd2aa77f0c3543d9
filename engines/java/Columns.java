package tidegauge;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The names of the columns of rows. There is one instance for the same names in the same order. */
final class Columns {
    private static final Map<List<String>, Columns> ALL = new ConcurrentHashMap<>();

    final List<String> names;
    /** The names as bytes, with which the bytes of a row begin. */
    final byte[] header;
    private final Map<String, Integer> places = new HashMap<>();

    private Columns(List<String> names) {
        this.names = names;
        header = String.join("\u0001", names).getBytes(StandardCharsets.UTF_8);
        for (var place = 0; place < names.size(); place++) places.put(names.get(place), place);
    }

    static Columns of(Collection<String> names) {
        var key = List.copyOf(names);
        return ALL.computeIfAbsent(key, Columns::new);
    }

    /** Those with a header. */
    static Columns at(byte[] header) {
        for (var one : ALL.values()) if (Arrays.equals(one.header, header)) return one;
        var text = new String(header, StandardCharsets.UTF_8);
        return of(text.isEmpty() ? List.of() : List.of(text.split("\u0001")));
    }

    /** The place of a column; -1 if there is none. */
    int place(String name) {
        var place = places.get(name);
        return place == null ? -1 : place;
    }
}
