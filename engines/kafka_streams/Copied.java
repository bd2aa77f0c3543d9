package tidegauge;

import java.util.List;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;

/** Forwards the values of the topics that a copy reads. */
final class Copied extends ContextualFixedKeyProcessor<byte[], byte[], byte[]> {
    private final String name;
    private final List<String> topics;

    Copied(Plan plan, Stage stage) {
        name = stage.name;
        topics = stage.reads.stream().filter(plan.inputs::containsKey)
            .map(read -> plan.inputs.get(read).topic()).toList();
    }

    @Override
    public void process(FixedKeyRecord<byte[], byte[]> record) {
        var topic = context().recordMetadata().get().topic();
        if (record.value() == null || !topics.contains(topic)) return;
        Lines.count(name);
        context().forward(record);
    }
}
