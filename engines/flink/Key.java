package tidegauge.flink;

import java.util.Collection;
import org.apache.flink.api.java.functions.KeySelector;

/** The run and the keys of a stage, as one text. */
final class Key implements KeySelector<Event, String> {
    private static final long serialVersionUID = 1;
    private final Schema.Column[] columns;

    Key(Schema schema, Collection<String> columns) {
        this.columns = schema.columns(columns).toArray(Schema.Column[]::new);
    }

    @Override
    public String getKey(Event event) {
        var text = new StringBuilder(48);
        for (var column : columns) text.append(column.of(event)).append('\u0001');
        return text.toString();
    }
}
