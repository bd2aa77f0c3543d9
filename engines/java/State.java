package tidegauge;

import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * The state of a stage: rows by text key, in key order. Rows expire in the order of insertion, by
 * the time at which they were appended.
 */
public abstract class State implements Serializable {
    private static final long serialVersionUID = 1;
    private static final long SHIFT = 100_000_000_000_000L;  // keeps all times at 15 digits
    public static final String LAST = "\uffff";
    private final Deque<Entry> oldest = new ArrayDeque<>();

    private record Entry(String key, long appendedMs) implements Serializable {}

    public abstract Row get(String key);

    protected abstract void write(String key, Row row);

    protected abstract void remove(String key);

    /** All entries from a key up to and including another, in order. */
    public abstract List<Map.Entry<String, Row>> range(String from, String to);

    public abstract long size();

    public final void put(String key, Row row) {
        oldest.add(new Entry(key, row.appendedMs));
        write(key, row);
    }

    /** Remove rows appended more than keptMs before another row. */
    public final void expire(long appendedMs, long keptMs) {
        while (!oldest.isEmpty() && oldest.peek().appendedMs < appendedMs - keptMs) {
            remove(oldest.poll().key);
        }
    }

    /** Existing rows expire in their turn. */
    protected final void restore() {
        range("", LAST).stream().map(one -> new Entry(one.getKey(), one.getValue().appendedMs))
            .sorted(Comparator.comparingLong(Entry::appendedMs)).forEach(oldest::add);
    }

    /** All rows whose keys have this prefix. */
    public List<Row> group(String prefix) {
        var found = new ArrayList<Row>();
        range(prefix, prefix + LAST).forEach(one -> found.add(one.getValue()));
        return found;
    }

    static String time(long timeMs) {
        return String.valueOf(SHIFT + timeMs);
    }

    /** The time at the start of a key. */
    static long timeOf(String key) {
        return Long.parseLong(key.substring(0, key.indexOf('\u0001'))) - SHIFT;
    }

    /** Key prefix of a group. */
    public static String prefix(long timeMs, Stage spec, Row row) {
        var text = new StringBuilder(time(timeMs)).append('\u0001').append(row.runId());
        for (var name : spec.keys) text.append('\u0001').append(row.get(name));
        return text.append('\u0002').toString();
    }

    /** A state in the heap. */
    public static final class Heap extends State {
        private static final long serialVersionUID = 1;
        private final TreeMap<String, Row> rows = new TreeMap<>();

        @Override
        public Row get(String key) {
            return rows.get(key);
        }

        @Override
        protected void write(String key, Row row) {
            rows.put(key, row);
        }

        @Override
        protected void remove(String key) {
            rows.remove(key);
        }

        @Override
        public List<Map.Entry<String, Row>> range(String from, String to) {
            return new ArrayList<>(rows.subMap(from, true, to, true).entrySet());
        }

        @Override
        public long size() {
            return rows.size();
        }
    }
}
