package tidegauge.flink;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.util.Collector;
import tidegauge.Lines;
import tidegauge.Plan;
import tidegauge.Step;

/** decode, filter, lookup: a function of one event. */
final class PerRow extends RichFlatMapFunction<Event, Event> {
    private static final long serialVersionUID = 1;

    /** A condition of a filter. */
    private record Condition(Schema.Column column, String operator, Object value) {}

    private final String path;
    private final String name;
    private final Schema schema;
    private transient List<Condition> conditions;
    private transient Schema.Column key;
    private transient Map<String, Object[]> table;
    private transient LongAdder read;

    PerRow(Plan plan, String name, Schema schema) {
        path = plan.path;
        this.name = name;
        this.schema = schema;
    }

    /** The columns of its rows: those of the event, and those of the table. */
    static List<String> columns(Plan plan, String name, String[] of) {
        var names = new ArrayList<>(List.of(of));
        var table = plan.stages.get(name).table;
        if (!table.isNull()) table.get("columns").forEach(one -> names.add(one.asText()));
        return names;
    }

    @Override
    public void open(OpenContext context) {
        var stage = Plan.of(path).stages.get(name);
        conditions = new ArrayList<>();
        stage.where.forEach(one -> conditions.add(new Condition(
            schema.column(one.get("column").asText()), one.get("operator").asText(),
            Step.value(one.get("value")))));
        if (!stage.table.isNull()) {
            key = schema.column(stage.table.get("key").asText());
            table = new HashMap<>();
            stage.table.get("rows").fields().forEachRemaining(row -> {
                var values = new Object[row.getValue().size()];
                for (var i = 0; i < values.length; i++) values[i] = Step.value(row.getValue().get(i));
                table.put(row.getKey(), values);
            });
        }
        read = Lines.counter(name);
    }

    @Override
    public void flatMap(Event event, Collector<Event> out) {
        if (event.values == null) return;
        read.increment();
        for (var condition : conditions) {
            var found = condition.column.of(event);
            if (!Step.holds(condition.operator, found, condition.value)) return;
        }
        if (table == null) {
            out.collect(event);
            return;
        }
        var entry = table.get(String.valueOf(key.of(event)));
        if (entry == null) return;
        var values = Arrays.copyOf(event.values, event.values.length + entry.length);
        System.arraycopy(entry, 0, values, event.values.length, entry.length);
        out.collect(event.with(values));
    }
}
