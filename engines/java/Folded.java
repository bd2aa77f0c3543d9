package tidegauge;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Consumer;

/**
 * Windows that close as those of `Closed`, of records of inputs, for states that end with their
 * program. A record is kept only until everything appended before it has been read, since a window
 * is then known to be open or not; after that it is part of aggregates. One that comes again is
 * passed over.
 */
final class Folded extends Step {
    /** The records of a window with the same values of the stage's keys. newest: by appending. */
    private static final class Group {
        final Row first;
        final List<Accumulator> accumulators;
        final Set<String> sources = new HashSet<>();
        Row newest;

        Group(Row first, List<Accumulator> accumulators) {
            this.first = first;
            this.accumulators = accumulators;
            newest = first;
        }
    }

    /** published: the keys whose output was published. */
    private static final class Window extends Closings.Window {
        final Deque<Row> waiting = new ArrayDeque<>();
        final Map<List<Object>, Group> groups = new HashMap<>();
        final Set<List<Object>> published = new HashSet<>();

        Window(Closings closings, Stage stage, String runId, long start) {
            super(closings, stage, runId, start);
        }
    }

    private final Closings closings;
    /** By start and run. */
    private final TreeMap<String, Window> windows = new TreeMap<>();
    /** By input and partition. */
    private final Map<String, Seen> seen = new HashMap<>();
    private volatile long rows;

    Folded(Stage spec, Setup setup, Closings closings) {
        super(spec, Closed.keptMs(spec, setup));
        this.closings = closings;
    }

    @Override
    public long rows(State state) {
        return rows;
    }

    @Override
    public void add(Row row, State state, Consumer<Row> out) {
        if (!uses(row) || isAgain(row)) return;
        for (var start : spec.starts(row.eventMs)) {
            if (closings.isLate(row, spec, start)) continue;
            var window = windows.computeIfAbsent(Closings.Window.name(row.runId(), start),
                any -> new Window(closings, spec, row.runId(), start));
            window.has(row);
            window.waiting.add(row);
        }
    }

    private boolean isAgain(Row row) {
        var partition = row.source + ":" + row.partition();
        return !seen.computeIfAbsent(partition, any -> new Seen()).isNew(row.offset);
    }

    /**
     * The offsets of a partition that were seen, in any order, a bit each. One that is millions
     * behind the newest counts as seen.
     */
    private static final class Seen {
        private static final int OF_CHUNK = 1 << 16;
        private static final int CHUNKS = 64;
        private final TreeMap<Long, BitSet> chunks = new TreeMap<>();

        boolean isNew(long offset) {
            var number = offset / OF_CHUNK;
            var chunk = chunks.get(number);
            if (chunk == null) {
                if (!chunks.isEmpty() && number <= chunks.lastKey() - CHUNKS) return false;
                chunk = new BitSet(OF_CHUNK);
                chunks.put(number, chunk);
                while (chunks.firstKey() <= chunks.lastKey() - CHUNKS) chunks.pollFirstEntry();
            }
            var place = (int) (offset % OF_CHUNK);
            if (chunk.get(place)) return false;
            chunk.set(place);
            return true;
        }
    }

    @Override
    public void clock(long now, State state, Consumer<Row> out) {
        var count = 0L;
        for (var all = windows.values().iterator(); all.hasNext();) {
            var window = all.next();
            var dueMs = window.dueMs();
            if (dueMs <= now) {
                window.waiting.forEach(row -> {
                    if (row.appendedMs <= dueMs) fold(row, window);
                });
                window.waiting.clear();
                publish(window, out);
                if (window.newestMs() < now - keptMs) all.remove();
            } else {
                while (!window.waiting.isEmpty() && window.waiting.peek().appendedMs <= now) {
                    fold(window.waiting.poll(), window);
                }
            }
            count += window.waiting.size() + window.groups.size();
        }
        rows = count;
    }

    private void fold(Row row, Window window) {
        var key = new ArrayList<Object>(spec.keys.size());
        for (var name : spec.keys) key.add(row.get(name));
        var group = window.groups.get(key);
        if (group == null) {
            if (window.published.contains(key)) return;
            group = new Group(row, Accumulator.of(spec));
            window.groups.put(key, group);
        }
        group.sources.add(row.source);
        if (row.appendedMs > group.newest.appendedMs) group.newest = row;
        Accumulator.add(group.accumulators, spec, row);
    }

    private void publish(Window window, Consumer<Row> out) {
        window.groups.forEach((key, group) -> {
            window.published.add(key);
            if (!group.sources.containsAll(spec.needed)) return;
            var columns = Accumulator.results(group.accumulators, spec);
            var id = State.prefix(window.start, spec, group.first);
            var rows = List.of(group.first, group.newest);
            out.accept(madeOfWindow(rows, id, columns, window.start));
        });
        window.groups.clear();
    }
}
