package tidegauge;

import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.storm.kafka.spout.Func;
import org.apache.storm.tuple.Values;

/**
 * The row of a record, after the stages without state before a stage: what the spout emits if that
 * is all that is made of the inputs. So their records take no way through a bolt of their own.
 */
final class Decoded implements Func<ConsumerRecord<byte[], byte[]>, List<Object>> {
    private static final long serialVersionUID = 1;

    private final String path;
    private final String until;
    private transient Plan plan;
    private transient List<Step> steps;

    private Decoded(String path, String until) {
        this.path = path;
        this.until = until;
    }

    /** Null if more is made of the inputs: copies, outputs, rows of several kinds, clocks. */
    static Decoded of(Plan plan) {
        var read = plan.stages.values().stream()
            .filter(stage -> stage.isStateful() && isOfInputs(plan, stage))
            .map(stage -> Chain.readBy(plan, stage)).distinct().toList();
        var isMore = plan.hasClosed() || plan.outputs.keySet().stream()
            .anyMatch(name -> !plan.stages.get(name).isStateful()
                && isOfInputs(plan, plan.stages.get(name)));
        return read.size() != 1 || isMore ? null : new Decoded(plan.path, read.get(0));
    }

    private static boolean isOfInputs(Plan plan, Stage stage) {
        return Chain.boltOf(plan, Chain.readBy(plan, stage)).equals(Inputs.NAME);
    }

    private void open() {
        plan = Plan.of(path);
        steps = new ArrayList<>();
        for (var stage = plan.stages.get(until); stage != null;
                stage = plan.stages.get(Chain.readBy(plan, stage))) {
            steps.add(0, Chain.stepOf(stage));
        }
    }

    @Override
    public List<Object> apply(ConsumerRecord<byte[], byte[]> record) {
        if (plan == null) open();
        Inputs.NEXT.put(new TopicPartition(record.topic(), record.partition()), record.offset() + 1);
        var row = plan.row(record.topic(), record.partition(), record.offset(), record.timestamp(),
            record.value());
        var made = new Row[] {row};
        for (var step : steps) {
            var given = made[0];
            if (given == null) return null;
            made[0] = null;
            step.take(given, null, one -> made[0] = one);
        }
        return made[0] == null ? null : new Values(made[0]);
    }
}
