package tidegauge;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/**
 * Windows that close as those of `Closed`, of records of inputs, for states that end with their
 * program. A record is kept only until everything appended before it has been read, since a window
 * is then known to be open or not; after that it is part of aggregates. Records of a partition
 * must come in the order of their offsets: one that comes again is passed over.
 */
final class Folded extends Step {
    /** The records of a window with the same values of the stage's keys. */
    private static final class Group {
        final Row first;
        final List<Accumulator> accumulators;
        final Set<String> sources = new HashSet<>();
        long appendedMs = Long.MIN_VALUE;

        Group(Row first, List<Accumulator> accumulators) {
            this.first = first;
            this.accumulators = accumulators;
        }
    }

    /** A window of all keys. published: the keys whose output was published. */
    private static final class Window {
        final String runId;
        final long start;
        final AtomicLong newestMs;
        final Deque<Row> waiting = new ArrayDeque<>();
        final Map<List<Object>, Group> groups = new HashMap<>();
        final Set<List<Object>> published = new HashSet<>();

        Window(String runId, long start, AtomicLong newestMs) {
            this.runId = runId;
            this.start = start;
            this.newestMs = newestMs;
        }
    }

    private final Closings closings;
    private final Set<String> needed = new HashSet<>();
    /** By start and run. */
    private final TreeMap<String, Window> windows = new TreeMap<>();
    /** The last offset by input and partition. */
    private final Map<String, long[]> last = new HashMap<>();
    private volatile long rows;

    Folded(Stage spec, Setup setup, Closings closings) {
        super(spec, Closed.keptMs(spec, setup));
        this.closings = closings;
        spec.aggregates.forEach(each -> each.of().forEach(of -> needed.add(of.input())));
        needed.remove("");
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
            var window = windows.computeIfAbsent(State.time(start) + row.runId(), any -> new Window(
                row.runId(), start, closings.newestMs(spec.name, row.runId(), start)));
            window.newestMs.accumulateAndGet(row.appendedMs, Math::max);
            window.waiting.add(row);
        }
    }

    private boolean isAgain(Row row) {
        var partition = row.id.substring(0, row.id.lastIndexOf(':'));
        var offset = last.computeIfAbsent(partition, any -> new long[] {-1});
        if (row.offset <= offset[0]) return true;
        offset[0] = row.offset;
        return false;
    }

    @Override
    public void clock(long now, State state, Consumer<Row> out) {
        var count = 0L;
        for (var all = windows.values().iterator(); all.hasNext();) {
            var window = all.next();
            var dueMs = closings.dueMs(
                window.runId, spec, window.start, window.newestMs.get());
            if (dueMs <= now) {
                window.waiting.forEach(row -> {
                    if (row.appendedMs <= dueMs) fold(row, window);
                });
                window.waiting.clear();
                publish(window, out);
                if (window.newestMs.get() < now - keptMs) all.remove();
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
            var empty = spec.aggregates.stream().map(each -> new Accumulator(each.function()));
            group = new Group(row.only(spec.kept, false), empty.toList());
            window.groups.put(key, group);
        }
        group.sources.add(row.source);
        group.appendedMs = Math.max(group.appendedMs, row.appendedMs);
        for (var i = 0; i < spec.aggregates.size(); i++) {
            for (var of : spec.aggregates.get(i).of()) {
                var isRead = of.input().isEmpty() || row.isOf(of.input());
                var value = isRead ? row.get(of.column()) : null;
                if (value == null) continue;
                group.accumulators.get(i).add(value, row.appendedMs, row.offset);
            }
        }
    }

    private void publish(Window window, Consumer<Row> out) {
        window.groups.forEach((key, group) -> {
            window.published.add(key);
            if (!group.sources.containsAll(needed)) return;
            var columns = new HashMap<String, Object>();
            for (var i = 0; i < spec.aggregates.size(); i++) {
                var column = spec.aggregates.get(i).column();
                columns.put(column, group.accumulators.get(i).result());
            }
            var newest = new Row(group.first.fields, group.first.source, group.first.id,
                group.first.eventMs, group.appendedMs, group.first.offset);
            var id = State.prefix(window.start, spec, newest);
            out.accept(madeOfWindow(List.of(newest), id, columns, window.start));
        });
        window.groups.clear();
    }
}
