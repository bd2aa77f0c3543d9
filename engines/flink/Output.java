package tidegauge.flink;

import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.kafka.clients.producer.ProducerRecord;
import tidegauge.Codec;
import tidegauge.Plan;

/** Encodes the rows of a stage. */
final class Output implements KafkaRecordSerializationSchema<Event> {
    private static final long serialVersionUID = 1;
    private final String path;
    private final String name;
    private final Schema schema;
    private transient String topic;
    private transient Codec codec;
    private transient List<Schema.Column> columns;
    private transient Schema.Column key;

    Output(Plan plan, String name, Schema schema) {
        path = plan.path;
        this.name = name;
        this.schema = schema;
    }

    private void open() {
        var plan = Plan.of(path);
        var stage = plan.stages.get(name);
        topic = plan.outputs.get(name);
        codec = stage.record;
        key = schema.column(stage.key);
        columns = schema.columns(codec.names());
    }

    @Override
    public ProducerRecord<byte[], byte[]> serialize(
            Event event, KafkaSinkContext context, Long timestamp) {
        if (topic == null) open();
        var values = new Object[columns.size()];
        for (var i = 0; i < values.length; i++) values[i] = columns.get(i).of(event);
        var text = String.valueOf(key.of(event)).getBytes(StandardCharsets.UTF_8);
        return new ProducerRecord<>(topic, text, codec.encode(values));
    }

    /** Passes on the bytes of the records. */
    static final class Copy implements KafkaRecordSerializationSchema<Event> {
        private static final long serialVersionUID = 1;
        private final String topic;

        Copy(String topic) {
            this.topic = topic;
        }

        @Override
        public ProducerRecord<byte[], byte[]> serialize(
                Event event, KafkaSinkContext context, Long timestamp) {
            return new ProducerRecord<>(topic, event.key, event.value);
        }
    }
}
