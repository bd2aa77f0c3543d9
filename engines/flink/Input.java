package tidegauge.flink;

import java.util.List;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import tidegauge.Lines;
import tidegauge.Plan;

/** Decodes the records of an input. One that does not decode is reported, and only copied. */
final class Input implements KafkaRecordDeserializationSchema<Event> {
    private static final long serialVersionUID = 1;
    private final String path;
    private final String name;
    private final boolean isCopied;
    private transient Plan plan;
    private transient Plan.Input input;
    private transient int source;
    private transient int eventTime;
    private transient long[] positions;

    /** isCopied: whether the bytes of its records are needed. */
    Input(Plan plan, String name, boolean isCopied) {
        path = plan.path;
        this.name = name;
        this.isCopied = isCopied;
    }

    @Override
    public void open(DeserializationSchema.InitializationContext context) {
        plan = Plan.of(path);
        input = plan.inputs.get(name);
        source = List.copyOf(plan.inputs.keySet()).indexOf(name);
        eventTime = input.record().names().indexOf(input.eventTime());
        positions = Progress.positions(plan, input.topic());
        Progress.opened();
    }

    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Event> out) {
        plan.throwIfDue();
        positions[record.partition()] = record.offset() + 1;
        var codec = input.record();
        var bytes = record.value();
        var values = plan.isJson ? codec.decodeJsonValues(bytes) : codec.decodeValues(bytes);
        var eventMs = values == null ? Long.MIN_VALUE : (Long) values[eventTime];
        if (values == null) {
            Lines.undecodable(record.topic(), record.partition(), record.offset(), bytes);
            if (!isCopied) return;
        }
        out.collect(new Event(source, eventMs, record.timestamp(), record.offset(), values,
            isCopied ? record.key() : null, isCopied ? bytes : null));
    }

    @Override
    public TypeInformation<Event> getProducedType() {
        return Type.EVENT;
    }
}
