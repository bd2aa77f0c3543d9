package tidegauge;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.function.LongSupplier;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Tuple;

/** One stage with state, which is in the heap and is lost with the worker. */
final class StageBolt extends BaseRichBolt {
    private static final long serialVersionUID = 1;
    private static final Map<String, Map<Integer, LongSupplier>> ROWS_KEPT =
        new ConcurrentHashMap<>();

    private final String path;
    private final String name;
    private final int before;
    private transient OutputCollector out;
    private transient Chain chain;
    private transient Step step;
    private transient State state;
    private transient Clocks clocks;
    private transient int task;

    /** before: number of tasks that send rows to it. */
    StageBolt(String path, String name, int before) {
        this.path = path;
        this.name = name;
        this.before = before;
    }

    static long stateRows(String stage) {
        return ROWS_KEPT.getOrDefault(stage, Map.of()).values().stream()
            .mapToLong(LongSupplier::getAsLong).sum();
    }

    @Override
    public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector given) {
        var plan = Plan.of(path);
        out = given;
        task = context.getThisTaskId();
        var stage = plan.stages.get(name);
        step = Step.of(stage, new Step.Setup(1000L * plan.number("kept_s"), 0, false));
        state = new State.Heap();
        clocks = new Clocks(before);
        chain = new Chain(plan, stage, out);
        ROWS_KEPT.computeIfAbsent(name, any -> new ConcurrentHashMap<>())
            .put(task, () -> step.rows(state));
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        var plan = Plan.of(path);
        Chain.declare(plan, plan.stages.get(name), declarer);
    }

    @Override
    public void execute(Tuple tuple) {
        var row = (Row) tuple.getValue(0);
        Consumer<Row> made = one -> chain.row(tuple, one);
        if (row.isClock()) {
            clocks.merged(row).ifPresent(now -> {
                step.clock(now, state, made);
                chain.clock(Row.clock(task, now));
            });
        } else {
            step.take(row, state, made);
        }
        out.ack(tuple);
    }
}
