package tidegauge;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.List;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/**
 * What a bolt does with the rows of a stage, or of the inputs: it publishes them, sends them to the
 * bolts of stages with state, and processes the stages without state itself, so that their rows take
 * no way between tasks.
 */
final class Chain {
    private static final String INPUTS = "";

    private final String name;
    private final OutputCollector out;
    private final Stage stage;
    private final boolean isPublished;
    private final boolean isRead;
    private final List<Chain> next = new ArrayList<>();
    private final Step step;

    /** stage: null for the inputs. */
    Chain(Plan plan, Stage stage, OutputCollector out) {
        name = stage == null ? INPUTS : stage.name;
        this.out = out;
        this.stage = stage;
        isPublished = plan.outputs.containsKey(name);
        isRead = isRead(plan, name);
        step = stage == null || stage.isStateful() ? null : stepOf(stage);
        for (var one : chained(plan, name)) next.add(new Chain(plan, one, out));
    }

    /** The step of a stage without state. */
    static Step stepOf(Stage stage) {
        return Step.of(stage, new Step.Setup(0, 0, false));
    }

    /** The name of what a stage reads: a stage with rows of its own, or the inputs. */
    static String readBy(Plan plan, Stage stage) {
        var read = plan.stages.get(stage.reads.get(0));
        return read == null || read.kind.equals("copy") ? INPUTS : read.name;
    }

    /** The bolt that has the rows that a stage reads. */
    static String boltOf(Plan plan, String read) {
        if (read.equals(INPUTS)) return Inputs.NAME;
        var stage = plan.stages.get(read);
        return stage.isStateful() ? read : boltOf(plan, readBy(plan, stage));
    }

    /** The stream of rows of a stage or of the inputs. */
    static String rows(String name) {
        return "rows-" + name;
    }

    /** The stream of its outputs. */
    static String outputs(String name) {
        return "outputs-" + name;
    }

    /** Declare the streams of a bolt with the rows of a stage, or of the inputs (null). */
    static void declare(Plan plan, Stage stage, OutputFieldsDeclarer declarer) {
        var name = stage == null ? INPUTS : stage.name;
        declarer.declareStream(rows(name), new Fields("row"));
        declarer.declareStream(outputs(name), new Fields("key", "value"));
        for (var one : chained(plan, name)) declare(plan, one, declarer);
    }

    /** The stages without state that read a stage, or the inputs. */
    private static List<Stage> chained(Plan plan, String name) {
        return plan.stages.values().stream()
            .filter(one -> !one.isStateful() && !one.kind.equals("copy"))
            .filter(one -> readBy(plan, one).equals(name)).toList();
    }

    private static boolean isRead(Plan plan, String name) {
        return plan.stages.values().stream()
            .anyMatch(one -> one.isStateful() && readBy(plan, one).equals(name));
    }

    /** Go on with a row. */
    void row(Tuple from, Row row) {
        if (isPublished) {
            out.emit(outputs(name), from,
                new Values(stage.keyOf(row).getBytes(UTF_8), stage.record.encode(row)));
        }
        if (isRead) out.emit(rows(name), from, new Values(row));
        for (var one : next) one.step.take(row, null, made -> one.row(from, made));
    }

    /** Tell the stages with state how far the inputs have been read. */
    void clock(Row clock) {
        if (isRead) out.emit(rows(name), new Values(clock));
        next.forEach(one -> one.clock(clock));
    }
}
