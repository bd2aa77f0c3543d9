package tidegauge;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * A processor per stage, each with a store. If the keys of a stage do not determine the partition
 * of its rows, they pass through an internal topic.
 */
final class Processors {
    private static final Duration LOOK = Duration.ofMillis(20);
    static final Serde<Row> ROWS = Serdes.serdeFrom(
        (topic, row) -> row.toBytes(), (topic, bytes) -> (Row) Stored.ofBytes(bytes));

    /** A stream of rows. column: determines their partition; tasks: number of senders of clocks. */
    private record Flow(KStream<String, Row> rows, String column, int tasks) {}

    private final Plan plan;
    private final boolean hasClosed;
    private final int partitions;
    private final Map<String, Flow> flows = new HashMap<>();
    private final Map<String, Map<Integer, State>> states = new ConcurrentHashMap<>();
    /** Next offset by partition of the inputs; only kept up if windows are closed. */
    private final Map<TopicPartition, Long> next;
    private Admin admin;

    /** next: offsets from which the inputs are read. */
    Processors(Plan plan, Map<TopicPartition, Long> next) {
        this.plan = plan;
        this.next = new ConcurrentHashMap<>(next);
        partitions = plan.partitions();
        hasClosed = plan.hasClosed();
    }

    long stateRows(String stage) {
        return states.getOrDefault(stage, Map.of()).values().stream().mapToLong(State::size).sum();
    }

    Topology topology() {
        if (hasClosed) admin = Admin.create(plan.kafka());
        var builder = new StreamsBuilder();
        var raw = builder.stream(
            plan.topics(), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()));
        var columns = plan.inputs.values().stream().map(Plan.Input::key).distinct().toList();
        var column = columns.size() == 1 ? columns.get(0) : "";
        var inputs = new Flow(raw.process(Source::new, Named.as("inputs")), column, 1);
        for (var stage : plan.stages.values()) {
            if (stage.kind.equals("copy")) copy(plan, stage, raw);
            var from = flows.getOrDefault(stage.reads.get(0), inputs);
            var made = stage.isStateful() ? stateful(stage, from, builder) : perRow(stage, from);
            flows.put(stage.name, made);
            if (!stage.kind.equals("copy")) publish(plan, stage, made.rows());
        }
        return builder.build();
    }

    static void copy(Plan plan, Stage stage, KStream<byte[], byte[]> raw) {
        var topic = plan.outputs.get(stage.name);
        if (topic == null) return;
        raw.processValues(() -> new Copied(plan, stage))
            .to(topic, Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
    }

    static void publish(Plan plan, Stage stage, KStream<String, Row> rows) {
        var topic = plan.outputs.get(stage.name);
        if (topic == null) return;
        rows.filter((key, row) -> !row.isClock())
            .map((key, row) -> KeyValue.pair(stage.keyOf(row), stage.record.encode(row)))
            .to(topic, Produced.with(Serdes.String(), Serdes.ByteArray()));
    }

    private Flow perRow(Stage stage, Flow from) {
        var rows = from.rows().process(() -> new StageProcessor(stage, from.tasks()), name(stage));
        return new Flow(rows, from.column(), 1);
    }

    private Flow stateful(Stage stage, Flow given, StreamsBuilder builder) {
        var from = stage.keys.contains(given.column()) ? given : repartitioned(stage, given);
        var isRocksDb = plan.choice("store").equals("rocksdb");
        builder.addStateStore(StoreState.builder(stage.name, isRocksDb));
        var rows = from.rows().process(
            () -> new StageProcessor(stage, from.tasks()), name(stage), stage.name);
        return new Flow(rows, from.column(), 1);
    }

    private static Named name(Stage stage) {
        return Named.as("stage-" + stage.name);
    }

    /** Rows by a stage's key; stages that read the same rows by the same key share the topic. */
    private Flow repartitioned(Stage stage, Flow from) {
        var name = stage.reads.get(0) + "-by-" + stage.key;
        return flows.computeIfAbsent(name, any -> {
            var how = Repartitioned.<String, Row>as(name).withNumberOfPartitions(partitions)
                .withKeySerde(Serdes.String()).withValueSerde(ROWS)
                .withStreamPartitioner(new ByKey());
            var rows = from.rows()
                .selectKey((key, row) -> row.isClock() ? "" : stage.keyOf(row)).repartition(how);
            return new Flow(rows, stage.key, partitions);
        });
    }

    /** A row goes to the partition of its key, a clock to all partitions. */
    private static final class ByKey implements StreamPartitioner<String, Row> {
        @Override
        public Optional<Set<Integer>> partitions(String topic, String key, Row row, int count) {
            if (row.isClock()) {
                return Optional.of(IntStream.range(0, count).boxed().collect(Collectors.toSet()));
            }
            var bytes = Serdes.String().serializer().serialize(topic, key);
            return Optional.of(Set.of(Utils.toPositive(Utils.murmur2(bytes)) % count));
        }
    }

    /** Decodes; what does not decode is dropped. */
    private final class Source implements Processor<byte[], byte[], String, Row> {
        private ProcessorContext<String, Row> context;
        private Pacer pacer;

        @Override
        public void init(ProcessorContext<String, Row> given) {
            context = given;
            var partition = given.taskId().partition();
            pacer = new Pacer(partition);
            if (!hasClosed) return;
            pacer.expect(plan.topicsWith(partition), given.currentSystemTimeMs());
            var ends = new Ends(admin, plan.topicsWith(partition).stream()
                .map(topic -> new TopicPartition(topic, partition)).toList(), 0);
            context.schedule(LOOK, PunctuationType.WALL_CLOCK_TIME, now -> pacer.at(now,
                () -> ends.processedUntilMs(now, next::get), row -> forward(row, now)));
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            var at = context.recordMetadata().get();
            if (hasClosed) {
                next.put(new TopicPartition(at.topic(), at.partition()), at.offset() + 1);
                // A task does not wait for a topic without a known lag, for example after a
                // restart.
                pacer.before(at.topic(), record.timestamp(), context.currentSystemTimeMs(),
                    row -> forward(row, record.timestamp()));
            }
            var row = plan.row(
                at.topic(), at.partition(), at.offset(), record.timestamp(), record.value());
            if (row != null) forward(row, record.timestamp());
        }

        private void forward(Row row, long timeMs) {
            var key = row.isClock() ? ""
                : String.valueOf(row.get(plan.inputs.get(row.source).key()));
            context.forward(new Record<>(key, row, Math.max(0, timeMs)));
        }
    }

    private final class StageProcessor implements Processor<String, Row, String, Row> {
        private final Stage stage;
        private final Step step;
        private ProcessorContext<String, Row> context;
        private final Clocks clocks;
        private State state;

        StageProcessor(Stage stage, int tasks) {
            this.stage = stage;
            clocks = new Clocks(tasks);
            var isExact = plan.choice("guarantee").equals("exactly-once");
            step = Step.of(stage, new Step.Setup(1000L * plan.number("kept_s"),
                isExact ? 0 : plan.number("commit_interval_ms"), true));
        }

        @Override
        public void init(ProcessorContext<String, Row> given) {
            context = given;
            if (!stage.isStateful()) return;
            KeyValueStore<String, byte[]> store = context.getStateStore(stage.name);
            state = new StoreState(store);
            states.computeIfAbsent(stage.name, any -> new ConcurrentHashMap<>())
                .put(context.taskId().partition(), state);
        }

        @Override
        public void process(Record<String, Row> record) {
            var row = record.value();
            Consumer<Row> out = made -> context.forward(record.withValue(made));
            if (row.isClock()) {
                clocks.merged(row).ifPresent(now -> {
                    step.clock(now, state, out);
                    out.accept(Row.clock(context.taskId().partition(), now));
                });
                return;
            }
            step.take(row, state, out);
        }
    }
}
