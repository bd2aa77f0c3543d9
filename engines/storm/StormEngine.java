package tidegauge;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.generated.StormTopology;
import org.apache.storm.kafka.bolt.KafkaBolt;
import org.apache.storm.kafka.bolt.mapper.FieldNameBasedTupleToKafkaMapper;
import org.apache.storm.kafka.bolt.selector.DefaultTopicSelector;
import org.apache.storm.kafka.spout.FirstPollOffsetStrategy;
import org.apache.storm.kafka.spout.KafkaSpout;
import org.apache.storm.kafka.spout.KafkaSpoutConfig;
import org.apache.storm.kafka.spout.KafkaSpoutConfig.ProcessingGuarantee;
import org.apache.storm.shade.org.apache.zookeeper.server.NIOServerCnxnFactory;
import org.apache.storm.shade.org.apache.zookeeper.server.ZooKeeperServer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Values;

/** Runs the stages of a plan as one Storm topology in a local cluster, a bolt per stage with state. */
public final class StormEngine {
    private static final String TOPOLOGY = "tidegauge";
    private static final String RECORDS = "records";

    private StormEngine() {}

    public static void main(String[] arguments) throws Exception {
        Lines.begin();
        var plan = Plan.of(arguments[arguments.length - 1]);
        System.setProperty("java.io.tmpdir", plan.text("folder"));
        Inputs.NEXT.putAll(Offsets.next(plan, Offsets.commitFirst(plan)));
        Lines.haltAtEnd();
        var cluster = new LocalCluster("127.0.0.1", zooKeeper(plan.text("folder")));
        cluster.submitTopology(TOPOLOGY, config(plan), topology(plan));
        var admin = Admin.create(plan.kafka());
        Lines.progress(plan, () -> {
            try {
                return Offsets.lags(admin, plan, Inputs.NEXT);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                return Map.of();
            }
        }, StageBolt::stateRows);
        Thread.currentThread().join();
    }

    /** Port of a ZooKeeper for the cluster. Storm's own would listen on all interfaces. */
    private static Long zooKeeper(String folder) throws Exception {
        var data = Path.of(folder, "zookeeper").toFile();
        var server = new NIOServerCnxnFactory();
        server.configure(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.startup(new ZooKeeperServer(data, data, ZooKeeperServer.DEFAULT_TICK_TIME));
        return (long) server.getLocalPort();
    }

    private static StormTopology topology(Plan plan) {
        var builder = new TopologyBuilder();
        var tasks = plan.number("tasks");
        var decoded = Decoded.of(plan);
        builder.setSpout(RECORDS, new ReadySpout(spout(plan, decoded), plan.path), 1);
        if (decoded == null) {
            builder.setBolt(Inputs.NAME, new Inputs(plan.path), 1).localOrShuffleGrouping(RECORDS);
        }
        for (var stage : plan.stages.values()) {
            var topic = plan.outputs.get(stage.name);
            var read = Chain.readBy(plan, stage);
            if (stage.isStateful()) {
                var from = Chain.boltOf(plan, read);
                var isFirst = from.equals(Inputs.NAME);
                var bolt = builder.setBolt(
                    stage.name, new StageBolt(plan.path, stage.name, isFirst ? 1 : tasks), tasks);
                var byKeys = new ByKeys(plan.path, stage.name);
                if (isFirst && decoded != null) bolt.customGrouping(RECORDS, byKeys);
                else bolt.customGrouping(from, Chain.rows(read), byKeys);
            }
            if (topic == null) continue;
            var sink = builder.setBolt("to-" + stage.name, sink(plan, topic), 1);
            if (stage.kind.equals("copy")) sink.localOrShuffleGrouping(Inputs.NAME, stage.name);
            else sink.localOrShuffleGrouping(
                Chain.boltOf(plan, stage.name), Chain.outputs(stage.name));
        }
        return builder.createTopology();
    }

    /** decoded: makes rows of the records; null to emit the records themselves. */
    private static KafkaSpoutConfig<byte[], byte[]> spout(Plan plan, Decoded decoded) {
        var isKept = plan.choice("guarantee").equals("at-least-once");
        var topics = plan.topics().toArray(String[]::new);
        var config = new KafkaSpoutConfig.Builder<byte[], byte[]>(plan.text("bootstrap"), topics)
            .setProp(plan.kafka())
            .setProp(ConsumerConfig.GROUP_ID_CONFIG, plan.group())
            .setProp(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class)
            .setProp(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class)
            .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.UNCOMMITTED_EARLIEST)
            .setPollTimeoutMs(plan.number("poll_timeout_ms"))
            .setOffsetCommitPeriodMs(plan.number("commit_interval_ms"))
            .setProcessingGuarantee(
                isKept ? ProcessingGuarantee.AT_LEAST_ONCE : ProcessingGuarantee.NO_GUARANTEE);
        if (decoded != null) config.setRecordTranslator(decoded, new Fields("row"));
        else config.setRecordTranslator(
            one -> new Values(one.topic(), one.partition(), one.offset(), one.timestamp(),
                one.key(), one.value()),
            new Fields("topic", "partition", "offset", "timestamp", "key", "value"));
        return config.build();
    }

    private static KafkaBolt<byte[], byte[]> sink(Plan plan, String topic) {
        var properties = new Properties();
        properties.putAll(plan.producer());
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        return new KafkaBolt<byte[], byte[]>().withProducerProperties(properties)
            .withTopicSelector(new DefaultTopicSelector(topic))
            .withTupleToKafkaMapper(new FieldNameBasedTupleToKafkaMapper<>("key", "value"));
    }

    private static Config config(Plan plan) {
        var found = new Config();
        var isPark = plan.choice("wait").equals("park");
        found.setNumWorkers(1);
        found.setNumAckers(plan.choice("guarantee").equals("at-least-once") ? 1 : 0);
        found.setMaxSpoutPending(plan.number("max_spout_pending"));
        if (isPark) {
            var park = "org.apache.storm.policy.WaitStrategyPark";
            found.put(Config.TOPOLOGY_SPOUT_WAIT_STRATEGY, park);
            found.put(Config.TOPOLOGY_BOLT_WAIT_STRATEGY, park);
            found.put(Config.TOPOLOGY_SPOUT_WAIT_PARK_MICROSEC, plan.number("wait_us"));
            found.put(Config.TOPOLOGY_BOLT_WAIT_PARK_MICROSEC, plan.number("wait_us"));
        }
        found.put(Config.TOPOLOGY_PRODUCER_BATCH_SIZE, plan.number("transfer_batch"));
        found.put(Config.TOPOLOGY_FALL_BACK_ON_JAVA_SERIALIZATION, true);
        return found;
    }

    /** Reports once that it is reading. */
    private static final class ReadySpout extends KafkaSpout<byte[], byte[]> {
        private static final long serialVersionUID = 1;
        private static final Duration QUIET = Duration.ofMillis(500);
        private final String path;
        private transient boolean isReady;
        private transient long beganNs;

        ReadySpout(KafkaSpoutConfig<byte[], byte[]> config, String path) {
            super(config);
            this.path = path;
        }

        @Override
        public void nextTuple() {
            super.nextTuple();
            if (isReady) return;
            if (beganNs == 0) beganNs = System.nanoTime();
            if (System.nanoTime() - beganNs < QUIET.toNanos()) return;
            isReady = true;
            Lines.ready(Map.of("guarantee", Plan.of(path).choice("guarantee")));
        }
    }
}
