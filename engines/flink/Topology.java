package tidegauge.flink;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.common.TopicPartition;
import tidegauge.Plan;
import tidegauge.Stage;

/**
 * The job of a plan: a source per input; stages of single events follow their source in its task;
 * before a stage with state the events are distributed by its keys.
 */
final class Topology {
    /** A transaction must outlast a checkpoint interval, and a restart. */
    private static final long TRANSACTION_INTERVALS = 10;
    private static final long MIN_TRANSACTION_MS = 60_000;
    private static final long MAX_TRANSACTION_MS = 900_000;
    private static final Duration ALIGNED_EVERY = Duration.ofMillis(100);

    /** A stream with one schema. */
    private record Branch(DataStream<Event> events, int source, Schema schema) {}

    private final Plan plan;
    private final StreamExecutionEnvironment flink;
    private final List<String> inputs;
    private final Map<String, List<Branch>> flows = new HashMap<>();
    /** The operators that are opened before the job runs. */
    private int operators;

    Topology(Plan plan, StreamExecutionEnvironment flink) {
        this.plan = plan;
        this.flink = flink;
        inputs = List.copyOf(plan.inputs.keySet());
    }

    /** Add the job; returns the number of calls of Progress.opened() that follow. */
    int build() {
        for (var stage : plan.stages.values()) {
            for (var read : stage.reads) if (plan.inputs.containsKey(read)) source(read);
        }
        plan.stages.values().forEach(this::add);
        return operators * flink.getParallelism();
    }

    private void source(String name) {
        if (flows.containsKey(name)) return;
        var input = plan.inputs.get(name);
        var isCopied = plan.stages.values().stream().anyMatch(
            stage -> stage.kind.equals("copy") && stage.reads.contains(name)
                && plan.outputs.containsKey(stage.name));
        var offsets = new HashMap<TopicPartition, Long>();
        var starts = plan.startOffsets().get(input.topic());
        for (var i = 0; i < starts.length; i++) {
            offsets.put(new TopicPartition(input.topic(), i), starts[i]);
        }
        var source = KafkaSource.<Event>builder()
            .setProperties(consumer()).setTopics(input.topic())
            .setGroupId(plan.group() + "-" + name)
            .setStartingOffsets(OffsetsInitializer.offsets(offsets))
            .setDeserializer(new Input(plan, name, isCopied)).build();
        var events = flink.fromSource(source, watermarks(), "input-" + name).uid("input-" + name);
        var place = inputs.indexOf(name);
        flows.put(name, List.of(
            new Branch(events, place, Schema.of(place, input.record().names()))));
        operators++;
    }

    private WatermarkStrategy<Event> watermarks() {
        var strategy = WatermarkStrategy
            .<Event>forBoundedOutOfOrderness(Duration.ofMillis(plan.number("out_of_order_ms")))
            .withTimestampAssigner((event, appendedMs) -> event.eventMs);
        if (plan.number("alignment_s") > 0) {
            strategy = strategy.withWatermarkAlignment("inputs",
                Duration.ofSeconds(plan.number("alignment_s")), ALIGNED_EVERY);
        }
        var idleMs = plan.number("idle_timeout_ms");
        return idleMs > 0 ? strategy.withIdleness(Duration.ofMillis(idleMs)) : strategy;
    }

    private void add(Stage stage) {
        var read = stage.reads.stream().flatMap(name -> flows.get(name).stream())
            .filter(branch -> takes(stage, branch)).toList();
        var made = switch (stage.kind) {
            case "copy" -> read;
            case "decode", "filter", "lookup" -> read.stream().map(one -> each(stage, one)).toList();
            default -> List.of(keyed(stage, read));
        };
        flows.put(stage.name, made);
        var topic = plan.outputs.get(stage.name);
        if (topic == null) return;
        for (var branch : made) {
            var name = stage.name + "-" + branch.source;
            if (stage.kind.equals("copy")) {
                var present = branch.events.filter(event -> event.value != null);
                publish(name, present, new Output.Copy(topic));
            } else {
                publish(name, branch.events, new Output(plan, stage.name, branch.schema));
            }
        }
    }

    /** Whether a stage uses the events of a branch. */
    private boolean takes(Stage stage, Branch branch) {
        if (branch.source == Event.DERIVED) return true;
        var name = inputs.get(branch.source);
        return stage.direct.isEmpty() || stage.direct.contains(name);
    }

    private Branch each(Stage stage, Branch from) {
        var columns = PerRow.columns(plan, stage.name, from.schema.names(from.source));
        var events = from.events.flatMap(new PerRow(plan, stage.name, from.schema))
            .returns(Type.EVENT).name(stage.name)
            .uid(stage.name + "-" + from.source);
        return new Branch(events, from.source, Schema.of(from.source, columns));
    }

    /** The events by the stage's keys, with the columns that it needs, and the stage. */
    private Branch keyed(Stage stage, List<Branch> read) {
        var keys = Rows.keys(stage);
        var streams = new ArrayList<DataStream<Event>>();
        Schema schema = null;
        for (var branch : read) {
            var isUsed = branch.source == Event.DERIVED
                || stage.inputs.contains(inputs.get(branch.source));
            if (!isUsed || !branch.schema.has(branch.source, keys)) continue;
            var columns = needed(stage, branch);
            var narrow = branch.events
                .flatMap(new Select(stage.name, branch.schema, columns))
                .returns(Type.EVENT).name("select-" + stage.name)
                .uid("select-" + stage.name + "-" + branch.source);
            var own = Schema.of(branch.source, columns);
            streams.add(narrow);
            schema = schema == null ? own : schema.and(own);
        }
        if (schema == null) throw new IllegalStateException(stage.name + " reads nothing");
        var rows = new Rows(plan, stage, schema);
        var key = new Key(schema, keys);
        var isJoin = stage.kind.endsWith("join");
        var isBuiltIn = plan.choice("implementation").equals("built-in");
        var keyed = (isBuiltIn && isJoin ? streams : List.of(union(streams))).stream()
            .map(stream -> stream.keyBy(key)).toList();
        var events = isBuiltIn
            ? BuiltIn.stage(stage, rows, keyed)
            : keyed.get(0).process(StageFunction.of(stage.kind, stage.isCounted(), rows));
        operators++;
        return new Branch(named(events, stage.name), Event.DERIVED, rows.made);
    }

    private static DataStream<Event> union(List<DataStream<Event>> streams) {
        return streams.stream().reduce((one, other) -> one.union(other)).get();
    }

    private static DataStream<Event> named(DataStream<Event> events, String name) {
        return ((SingleOutputStreamOperator<Event>) events).returns(Type.EVENT).name(name).uid(name);
    }

    private static List<String> needed(Stage stage, Branch branch) {
        var columns = new ArrayList<>(Rows.keys(stage));
        for (var name : branch.schema.names(branch.source)) {
            if (stage.kept.contains(name) && !columns.contains(name)) columns.add(name);
        }
        return columns;
    }

    private void publish(
            String name, DataStream<Event> events, KafkaRecordSerializationSchema<Event> how) {
        var guarantee = plan.choice("guarantee");
        var sink = KafkaSink.<Event>builder().setKafkaProducerConfig(producer(guarantee))
            .setRecordSerializer(how)
            .setDeliveryGuarantee(switch (guarantee) {
                case "none" -> DeliveryGuarantee.NONE;
                case "exactly-once" -> DeliveryGuarantee.EXACTLY_ONCE;
                default -> DeliveryGuarantee.AT_LEAST_ONCE;
            });
        if (guarantee.equals("exactly-once")) {
            sink.setTransactionalIdPrefix(plan.group() + "-" + name);
        }
        events.sinkTo(sink.build()).name("output-" + name).uid("output-" + name);
    }

    private Properties consumer() {
        var properties = plan.kafka();
        properties.put("partition.discovery.interval.ms", "0");
        properties.put("commit.offsets.on.checkpoint", "false");
        properties.put("register.consumer.metrics", "false");
        properties.put("enable.metrics.push", "false");
        return properties;
    }

    private Properties producer(String guarantee) {
        var properties = plan.producer();
        properties.put("acks", guarantee.equals("none") ? "1" : "all");
        properties.put("enable.idempotence", String.valueOf(!guarantee.equals("none")));
        properties.put("register.producer.metrics", "false");
        properties.put("enable.metrics.push", "false");
        var wantedMs = TRANSACTION_INTERVALS * plan.number("checkpoint_interval_ms");
        var timeoutMs = Math.min(MAX_TRANSACTION_MS, Math.max(MIN_TRANSACTION_MS, wantedMs));
        if (guarantee.equals("exactly-once")) {
            properties.put("transaction.timeout.ms", String.valueOf(timeoutMs));
        }
        return properties;
    }
}
