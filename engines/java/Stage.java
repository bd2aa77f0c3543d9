package tidegauge;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** One stage of a plan (schemas/domain.py). */
public final class Stage {
    /** A column computed from others; a source without an input is a column of the stage itself. */
    public record Aggregate(String column, String function, List<Source> of) {}

    public record Source(String input, String column) {
        static Source of(String text) {
            var dot = text.lastIndexOf('.');
            return new Source(dot < 0 ? "" : text.substring(0, dot), text.substring(dot + 1));
        }
    }

    public record Change(String column, String of, int back) {}

    public final String name;
    public final String kind;
    public final List<String> reads;
    public final Codec record;
    public final String key;
    public final List<String> keys;
    public final List<String> oncePer;
    public final JsonNode where;
    public final JsonNode table;
    public final List<Aggregate> aggregates = new ArrayList<>();
    public final List<Change> changes = new ArrayList<>();
    public final Map<String, Source> columns = new LinkedHashMap<>();
    public final long sizeMs;
    public final long slideMs;
    /** An open window is closed after this time without a record of it. */
    public final long deadlineMs;
    /** For a counted window; empty and 0 if event time closes it. */
    public final String completeColumn;
    public final long everyMs;
    /** The inputs it reads directly, or through a copy; empty if it reads another stage. */
    public final Set<String> direct = new LinkedHashSet<>();
    /** Names of the inputs that it depends on. */
    public final Set<String> inputs = new LinkedHashSet<>();
    /** Inputs without whose records a window has no output: those that aggregates name. */
    public final Set<String> needed = new LinkedHashSet<>();
    /** Whether its rows are records of inputs, some of them left out or with more columns. */
    public final boolean readsRecords;
    /** The event time column of the first of them. */
    public final String eventTime;
    /** Columns of a row that are kept until its output is made. */
    public final Set<String> kept = new LinkedHashSet<>(List.of("run_id"));
    private final Map<Columns, Part> parts = new ConcurrentHashMap<>();

    Stage(JsonNode json, Plan plan, Map<String, Stage> before) {
        name = json.get("name").asText();
        kind = json.get("kind").asText();
        reads = texts(json.get("reads"));
        record = plan.records.get(json.get("record").asText());
        key = json.get("key").asText();
        keys = texts(json.get("keys"));
        var once = texts(json.get("once_per"));
        oncePer = once.isEmpty() ? List.of("sequence") : once;
        where = json.get("where");
        table = json.get("table");
        for (var one : json.get("aggregates")) {
            var sources = texts(one.get("of")).stream().map(Source::of).toList();
            aggregates.add(new Aggregate(
                one.get("column").asText(), one.get("function").asText(), sources));
        }
        for (var one : json.get("changes")) {
            changes.add(new Change(
                one.get("column").asText(), one.get("of").asText(), one.get("back").asInt()));
        }
        json.get("columns").fields().forEachRemaining(
            one -> columns.put(one.getKey(), Source.of(one.getValue().asText())));
        var window = json.get("window");
        sizeMs = window.isNull() ? 0 : 1000L * window.get("size_s").asLong();
        slideMs = window.isNull() ? 0 : 1000L * window.get("slide_s").asLong();
        deadlineMs = plan.json.get("deadline_ms").asLong();
        var complete = json.get("complete");
        completeColumn = complete.isNull() ? "" : complete.get("column").asText();
        everyMs = complete.isNull() ? 0 : 1000L * complete.get("every_s").asLong();
        findInputs(plan, before);
        aggregates.forEach(each -> each.of().forEach(of -> needed.add(of.input())));
        needed.remove("");
        readsRecords = reads.stream().map(before::get).allMatch(
            one -> one == null || !one.isStateful() && one.readsRecords);
        eventTime = plan.inputs.get(inputs.iterator().next()).eventTime();
        findKept();
    }

    private void findInputs(Plan plan, Map<String, Stage> before) {
        for (var read : reads) {
            var stage = before.get(read);
            if (stage == null) inputs.add(read);
            else inputs.addAll(stage.inputs);
            if (stage == null) direct.add(read);
            else if (stage.kind.equals("copy")) direct.addAll(stage.direct);
        }
        var named = new LinkedHashSet<String>();
        columns.values().forEach(one -> named.add(one.input()));
        aggregates.forEach(each -> each.of().forEach(one -> named.add(one.input())));
        named.remove("");
        named.retainAll(inputs);
        if (!named.isEmpty()) {
            inputs.clear();  // in the order of the domain
            plan.inputs.keySet().stream().filter(named::contains).forEach(inputs::add);
        }
    }

    /** Its columns of rows: their places, and whether the rows have all columns of its key. */
    record Part(Columns columns, int[] places, boolean hasKey) {}

    /** The part of a row that is kept until its output is made. */
    Part part(Row row) {
        return parts.computeIfAbsent(row.columns, from -> {
            var names = kept.stream().filter(name -> from.place(name) >= 0).toList();
            var places = names.stream().mapToInt(from::place).toArray();
            var hasKey = keys.stream().allMatch(name -> from.place(name) >= 0);
            return new Part(Columns.of(names), places, hasKey);
        });
    }

    /** A row with that part alone. */
    public Row narrow(Row row) {
        var part = part(row);
        var values = new Object[part.places.length];
        for (var i = 0; i < values.length; i++) values[i] = row.values[part.places[i]];
        return row.with(part.columns, values);
    }

    private void findKept() {
        kept.addAll(keys);
        columns.values().forEach(one -> kept.add(one.column()));
        aggregates.forEach(each -> each.of().forEach(one -> kept.add(one.column())));
        changes.forEach(one -> kept.add(one.of()));
        if (kind.equals("change")) kept.add("window_start");
        if (!completeColumn.isEmpty()) {
            kept.addAll(oncePer);
            kept.add(completeColumn);
        }
    }

    /** Whether it accepts a row of what it reads. */
    public boolean takes(Row row) {
        return direct.isEmpty() || direct.contains(row.source);
    }

    public boolean isCounted() {
        return !completeColumn.isEmpty();
    }

    /** Whether its windows wait for event time. */
    public boolean isClosed() {
        return kind.equals("aggregate") && !isCounted();
    }

    /** Whether late records do not belong to its windows. */
    public boolean usesEventTime() {
        return isClosed() || kind.equals("window_join");
    }

    /** Whether it keeps something between two rows. */
    public boolean isStateful() {
        return List.of("join", "window_join", "aggregate", "change").contains(kind);
    }

    /** Start times of the windows that contain an event time, newest first. */
    public List<Long> starts(long eventMs) {
        var found = new ArrayList<Long>();
        var newest = Math.floorDiv(eventMs, slideMs) * slideMs;
        for (var at = newest; at > eventMs - sizeMs; at -= slideMs) found.add(at);
        return found;
    }

    /** The key of the Kafka record of an output. */
    public String keyOf(Row row) {
        return String.valueOf(row.get(key));
    }

    private static List<String> texts(JsonNode array) {
        var found = new ArrayList<String>();
        array.forEach(one -> found.add(one.asText()));
        return found;
    }
}
