package tidegauge.flink;

import java.util.Collection;
import java.util.List;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.util.Collector;
import tidegauge.Lines;

/** The columns that a stage needs, so that no others are sent to its task. */
final class Select extends RichFlatMapFunction<Event, Event> {
    private static final long serialVersionUID = 1;
    private final String stage;
    private final Schema.Column[] columns;
    private transient LongAdder read;

    Select(String stage, Schema schema, Collection<String> columns) {
        this.stage = stage;
        this.columns = List.copyOf(schema.columns(columns)).toArray(Schema.Column[]::new);
    }

    @Override
    public void open(OpenContext context) {
        read = Lines.counter(stage);
    }

    @Override
    public void flatMap(Event event, Collector<Event> out) {
        if (event.values == null) return;
        read.increment();
        var values = new Object[columns.length];
        for (var i = 0; i < values.length; i++) values[i] = columns[i].of(event);
        out.collect(event.with(values));
    }
}
