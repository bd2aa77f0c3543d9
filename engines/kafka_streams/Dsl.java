package tidegauge;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Each kind in terms of the DSL: stream-stream joins, windowed aggregations, and aggregations.
 * Kafka Streams inserts an internal topic where the key changes. The time of a record is its event
 * time.
 */
final class Dsl {
    private static final Serde<byte[]> BYTES = Serdes.ByteArray();

    private final Plan plan;
    private final Duration kept;
    private final Map<String, KStream<byte[], Row>> flows = new HashMap<>();

    Dsl(Plan plan) {
        this.plan = plan;
        kept = Duration.ofSeconds(plan.number("kept_s"));
    }

    Topology topology() {
        var builder = new StreamsBuilder();
        var raw = builder.stream(plan.topics(), Consumed.with(BYTES, BYTES));
        var inputs = raw.processValues(Decode::new);
        for (var stage : plan.stages.values()) {
            if (stage.kind.equals("copy")) Processors.copy(plan, stage, raw);
            var from = flows.getOrDefault(stage.reads.get(0), inputs)
                .filter((key, row) -> isRead(stage, row));
            var made = made(stage, from).processValues(Timed::new);
            flows.put(stage.name, made);
            if (!stage.kind.equals("copy")) publish(stage, made);
        }
        return builder.build();
    }

    private static boolean isRead(Stage stage, Row row) {
        if (!stage.takes(row)) return false;
        if (!stage.kind.equals("copy")) Lines.count(stage.name);
        return true;
    }

    private void publish(Stage stage, KStream<byte[], Row> rows) {
        var topic = plan.outputs.get(stage.name);
        if (topic == null) return;
        rows.map((key, row) -> KeyValue.pair(
                stage.keyOf(row).getBytes(UTF_8), stage.record.encode(row)))
            .to(topic, Produced.with(BYTES, BYTES));
    }

    private KStream<byte[], Row> made(Stage stage, KStream<byte[], Row> from) {
        return switch (stage.kind) {
            case "join" -> join(stage, from);
            case "window_join" -> windowJoin(stage, from);
            case "aggregate" -> counted(stage, from);
            case "change" -> change(stage, from);
            default -> {
                var step = Step.of(stage, setup());
                yield from.flatMapValues(row -> {
                    var found = new ArrayList<Row>();
                    step.add(row, null, found::add);
                    return found;
                });
            }
        };
    }

    private Step.Setup setup() {
        return new Step.Setup(kept.toMillis(), 0, true);
    }

    /** Pairs of records with the same keys and event time. */
    private KStream<byte[], Row> join(Stage stage, KStream<byte[], Row> from) {
        var step = new Join(stage, 0);
        var windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, kept);
        return sides(stage, from, row -> List.of(State.prefix(row.eventMs, stage, row)), windows,
            (key, one, other) -> step.joined(new String(key, UTF_8), List.of(one, other)));
    }

    /** Pairs of records in one window: a record is joined once for each of its windows. */
    private KStream<byte[], Row> windowJoin(Stage stage, KStream<byte[], Row> from) {
        var size = Duration.ofMillis(stage.sizeMs);
        var windows = JoinWindows.ofTimeDifferenceAndGrace(size, kept);
        return sides(stage, from,
            row -> stage.starts(row.eventMs).stream()
                .filter(start -> !Closings.ofProcess().isLate(row, stage, start))
                .map(start -> State.prefix(start, stage, row)).toList(),
            windows, (key, one, other) -> {
                var start = State.timeOf(new String(key, UTF_8));
                return WindowJoin.pair(stage, one, other, start);
            });
    }

    private KStream<byte[], Row> sides(Stage stage, KStream<byte[], Row> from,
            Function<Row, List<String>> keys, JoinWindows windows,
            ValueJoinerWithKey<byte[], Row, Row, Row> joiner) {
        if (stage.inputs.size() != 2) {
            throw new IllegalArgumentException(stage.name + ": the DSL can only join two inputs");
        }
        var names = stage.inputs.iterator();
        var one = side(stage, names.next(), from, keys);
        var other = side(stage, names.next(), from, keys);
        return one.join(other, joiner, windows,
            StreamJoined.with(BYTES, Processors.ROWS, Processors.ROWS)
                .withName(stage.name).withStoreName(stage.name));
    }

    private static KStream<byte[], Row> side(Stage stage, String input, KStream<byte[], Row> from,
            Function<Row, List<String>> keys) {
        return from.filter((any, row) -> row.source.equals(input)).flatMap((any, row) -> {
            var row2 = stage.narrow(row);
            return keys.apply(row).stream()
                .map(key -> KeyValue.pair(key.getBytes(UTF_8), row2)).toList();
        });
    }

    /** Group by key; if the key changes, through an internal topic. */
    private KGroupedStream<byte[], Row> grouped(Stage stage, KStream<byte[], Row> from) {
        var how = Grouped.<byte[], Row>as(stage.name).withKeySerde(BYTES)
            .withValueSerde(Processors.ROWS);
        var columns = plan.inputs.values().stream().map(Plan.Input::key).distinct().toList();
        var isByColumn = columns.size() == 1 && hasKeyOfInput(stage.reads.get(0));
        var rows = from.filter((key, row) -> row.source.isEmpty()
            || stage.inputs.contains(row.source)).mapValues(stage::narrow);
        if (isByColumn && stage.keys.equals(columns)) return rows.groupByKey(how);
        return rows.groupBy((any, row) -> State.prefix(0, stage, row).getBytes(UTF_8), how);
    }

    /** Whether the rows of an input or stage still have the keys of their records. */
    private boolean hasKeyOfInput(String name) {
        var stage = plan.stages.get(name);
        return stage == null || !stage.isStateful() && hasKeyOfInput(stage.reads.get(0));
    }

    /** Every record updates its window; the update that completes it is published. */
    private KStream<byte[], Row> counted(Stage stage, KStream<byte[], Row> from) {
        var step = new Counted(stage, 0);
        var windows = TimeWindows.ofSizeAndGrace(Duration.ofMillis(stage.sizeMs), kept)
            .advanceBy(Duration.ofMillis(stage.slideMs));
        return grouped(stage, from).windowedBy(windows)
            .aggregate(Group::new, (key, row, group) -> {
                group.made.clear();
                stage.starts(row.eventMs).forEach(start ->
                    step.addTo(start, row, group.rows, group.made::add));
                return group;
            }, Materialized.<byte[], Group, WindowStore<Bytes, byte[]>>as(stage.name)
                .withKeySerde(BYTES).withValueSerde(Group.SERDE))
            .toStream().flatMap((window, group) -> group.made.stream()
                .filter(row -> row.eventMs == window.window().end() - 1)
                .map(row -> KeyValue.pair(window.key(), row)).toList());
    }

    /** The newest windows of a key are the value of an aggregation. */
    private KStream<byte[], Row> change(Stage stage, KStream<byte[], Row> from) {
        var step = Step.of(stage, setup());
        return grouped(stage, from)
            .aggregate(Group::new, (key, row, group) -> {
                group.made.clear();
                step.add(row, group.rows, group.made::add);
                return group;
            }, Materialized.<byte[], Group, KeyValueStore<Bytes, byte[]>>as(stage.name)
                .withKeySerde(BYTES).withValueSerde(Group.SERDE))
            .toStream().flatMapValues(group -> group.made);
    }

    private final class Decode extends ContextualFixedKeyProcessor<byte[], byte[], Row> {
        @Override
        public void process(FixedKeyRecord<byte[], byte[]> record) {
            var at = context().recordMetadata().get();
            var row = plan.row(
                at.topic(), at.partition(), at.offset(), record.timestamp(), record.value());
            if (row != null) {
                context().forward(record.withValue(row).withTimestamp(Math.max(0, row.eventMs)));
            }
        }
    }

    /** Sets the timestamp of a record to the event time of its row. */
    private static final class Timed extends ContextualFixedKeyProcessor<byte[], Row, Row> {
        @Override
        public void process(FixedKeyRecord<byte[], Row> record) {
            context().forward(record.withTimestamp(Math.max(0, record.value().eventMs)));
        }
    }
}
