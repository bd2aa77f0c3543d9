package tidegauge;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.TopicPartition;
import org.apache.storm.Config;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;
import org.apache.storm.utils.TupleUtils;

/** Decodes, copies and sends clocks. Reports undecodable values. Processes stages without state. */
final class Inputs extends BaseRichBolt {
    static final String NAME = "inputs";
    /** Next offset by partition. */
    static final Map<TopicPartition, Long> NEXT = new ConcurrentHashMap<>();
    private static final long serialVersionUID = 1;
    /** How long a tick waits for the ends; ticks are a second apart. */
    private static final long ANSWER_MS = 500;

    private final String path;
    private transient Plan plan;
    private transient OutputCollector out;
    private transient List<Stage> copies;
    private transient Chain chain;
    private transient Pacer pacer;
    private transient Ends ends;
    private transient boolean hasClosed;
    private transient Map<TopicPartition, String> names;

    Inputs(String path) {
        this.path = path;
    }

    @Override
    public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector given) {
        out = given;
        plan = Plan.of(path);
        pacer = new Pacer(context.getThisTaskId());
        copies = copies(plan);
        chain = new Chain(plan, null, out);
        hasClosed = plan.hasClosed();
        if (hasClosed) ends = new Ends(Admin.create(plan.kafka()), NEXT.keySet(), ANSWER_MS);
        names = new HashMap<>();
    }

    private long processedUntilMs() {
        return ends.processedUntilMs(System.currentTimeMillis(), NEXT::get);
    }

    private static List<Stage> copies(Plan plan) {
        return plan.stages.values().stream().filter(one -> one.kind.equals("copy")).toList();
    }

    @Override
    public Map<String, Object> getComponentConfiguration() {
        return Map.of(Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS, 1);
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        Chain.declare(Plan.of(path), null, declarer);
        copies(Plan.of(path)).forEach(
            stage -> declarer.declareStream(stage.name, new Fields("key", "value")));
    }

    @Override
    public void execute(Tuple tuple) {
        var now = System.currentTimeMillis();
        if (TupleUtils.isTick(tuple)) {
            if (hasClosed) pacer.at(now, this::processedUntilMs, this::sayClock);
            return;
        }
        var at = new TopicPartition(tuple.getString(0), tuple.getInteger(1));
        var appendedMs = tuple.getLong(3);
        var value = tuple.getBinary(5);
        NEXT.put(at, tuple.getLong(2) + 1);
        for (var stage : copies) {
            if (value == null || !stage.reads.contains(plan.inputOf(at.topic()).name())) continue;
            Lines.count(stage.name);
            out.emit(stage.name, tuple, new Values(tuple.getValue(4), value));
        }
        if (hasClosed) {
            var name = names.computeIfAbsent(at, TopicPartition::toString);
            pacer.before(name, appendedMs, now, this::sayClock);
        }
        var row = plan.row(at.topic(), at.partition(), tuple.getLong(2), appendedMs, value);
        if (row != null) chain.row(tuple, row);
        out.ack(tuple);
    }

    private void sayClock(Row clock) {
        chain.clock(clock);
    }
}
