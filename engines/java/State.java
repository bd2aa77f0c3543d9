package tidegauge;

import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * The state of a stage: values by text key. A key begins with the prefix of its group. Values expire
 * in the order of insertion, by the time at which they were appended.
 */
public abstract class State implements Serializable {
    private static final long serialVersionUID = 1;
    private static final long SHIFT = 100_000_000_000_000L;  // keeps all times at 15 digits
    private static final char END_OF_PREFIX = '\u0002';
    private final Deque<Entry> oldest = new ArrayDeque<>();

    private record Entry(String prefix, String name, long appendedMs) implements Serializable {}

    /** The value of a group with a name; null if there is none. */
    public abstract Stored get(String prefix, String name);

    protected abstract void write(String prefix, String name, Stored value);

    protected abstract void remove(String prefix, String name);

    /** All rows whose keys have this prefix. */
    public abstract List<Row> group(String prefix);

    /** All entries, in the order of their prefixes. */
    public abstract List<Map.Entry<String, Stored>> all();

    public abstract long size();

    public final void put(String prefix, String name, Stored value) {
        oldest.add(new Entry(prefix, name, value.appendedMs()));
        write(prefix, name, value);
    }

    /** Put a value in place of another one. */
    public final void replace(String prefix, String name, Stored value) {
        write(prefix, name, value);
    }

    /** Remove values appended more than keptMs before a row. One that was replaced stays longer. */
    public final void expire(long appendedMs, long keptMs) {
        while (!oldest.isEmpty() && oldest.peek().appendedMs < appendedMs - keptMs) {
            var one = oldest.poll();
            var value = get(one.prefix, one.name);
            if (value == null) continue;
            if (value.appendedMs() < appendedMs - keptMs) remove(one.prefix, one.name);
            else oldest.add(new Entry(one.prefix, one.name, value.appendedMs()));
        }
    }

    /** Existing values expire in their turn. */
    protected final void restore() {
        var entries = new ArrayList<Entry>();
        for (var one : all()) {
            var prefix = prefixOf(one.getKey());
            var name = one.getKey().substring(prefix.length());
            entries.add(new Entry(prefix, name, one.getValue().appendedMs()));
        }
        entries.sort(Comparator.comparingLong(Entry::appendedMs));
        oldest.addAll(entries);
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
        return text.append(END_OF_PREFIX).toString();
    }

    /** The prefix with which a key begins. */
    static String prefixOf(String key) {
        return key.substring(0, key.indexOf(END_OF_PREFIX) + 1);
    }

    /** A state in the heap. alone: values without a name, by prefix. */
    public static final class Heap extends State {
        private static final long serialVersionUID = 1;
        private final Map<String, Stored> alone = new HashMap<>();
        private final Map<String, TreeMap<String, Stored>> groups = new HashMap<>();
        private long size;

        @Override
        public Stored get(String prefix, String name) {
            if (name.isEmpty()) return alone.get(prefix);
            var group = groups.get(prefix);
            return group == null ? null : group.get(name);
        }

        @Override
        protected void write(String prefix, String name, Stored value) {
            var before = name.isEmpty() ? alone.put(prefix, value)
                : groups.computeIfAbsent(prefix, any -> new TreeMap<>()).put(name, value);
            if (before == null) size++;
        }

        @Override
        protected void remove(String prefix, String name) {
            if (name.isEmpty()) {
                if (alone.remove(prefix) != null) size--;
                return;
            }
            var group = groups.get(prefix);
            if (group == null || group.remove(name) == null) return;
            size--;
            if (group.isEmpty()) groups.remove(prefix);
        }

        @Override
        public List<Row> group(String prefix) {
            var rows = new ArrayList<Row>();
            if (alone.get(prefix) instanceof Row row) rows.add(row);
            var group = groups.get(prefix);
            if (group != null) group.values().forEach(one -> rows.add((Row) one));
            return rows;
        }

        @Override
        public List<Map.Entry<String, Stored>> all() {
            var entries = new TreeMap<>(alone);
            groups.forEach((prefix, group) ->
                group.forEach((name, value) -> entries.put(prefix + name, value)));
            return new ArrayList<>(entries.entrySet());
        }

        @Override
        public long size() {
            return size;
        }
    }
}
