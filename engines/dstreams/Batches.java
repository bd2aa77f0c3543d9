package tidegauge;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.spark.api.java.Optional;
import org.apache.spark.api.java.function.Function3;
import org.apache.spark.streaming.Durations;
import org.apache.spark.streaming.State;
import org.apache.spark.streaming.StateSpec;
import org.apache.spark.streaming.api.java.JavaDStream;
import org.apache.spark.streaming.api.java.JavaInputDStream;
import scala.Tuple2;

/**
 * The stages as streams of batches: stateful stages are mapWithState by their keys. All outputs of
 * a batch are one job, which takes less time than one job per stage.
 */
final class Batches {
    /** A record to send. */
    private record Output(String topic, byte[] key, byte[] value) implements Serializable {}

    private static final Map<String, Step> STEPS = new ConcurrentHashMap<>();
    private static KafkaProducer<byte[], byte[]> producer;

    private final Plan plan;
    private final JavaInputDStream<ConsumerRecord<byte[], byte[]>> records;
    private final Map<String, JavaDStream<Row>> flows = new HashMap<>();

    Batches(Plan plan, JavaInputDStream<ConsumerRecord<byte[], byte[]>> records) {
        this.plan = plan;
        this.records = records;
    }

    void publish() {
        var path = plan.path;
        var rows = records.flatMap(one -> {
            var plan = Plan.of(path);
            var row = plan.row(
                one.topic(), one.partition(), one.offset(), one.timestamp(), one.value());
            return row == null ? Collections.emptyIterator() : List.of(row).iterator();
        }).cache();
        JavaDStream<Output> all = null;
        for (var stage : plan.stages.values()) {
            var read = flows.get(stage.reads.get(0));
            var isCopy = stage.kind.equals("copy");
            flows.put(stage.name, isCopy ? rows : made(stage, read == null ? rows : read));
            if (!plan.outputs.containsKey(stage.name)) continue;
            var outputs = isCopy ? copies(stage.name) : outputs(stage.name);
            all = all == null ? outputs : all.union(outputs);
        }
        all.foreachRDD(batch -> batch.foreachPartition(outputs -> send(path, outputs)));
    }

    /** Send a partition of a batch. Throws the first error, which ends the program. */
    private static void send(String path, Iterator<Output> outputs) throws Exception {
        var to = producer(path);
        var first = new AtomicReference<Exception>();
        while (outputs.hasNext()) {
            var one = outputs.next();
            to.send(new ProducerRecord<>(one.topic, one.key, one.value),
                (at, error) -> first.compareAndSet(null, error));
        }
        to.flush();
        if (first.get() != null) throw first.get();
    }

    private JavaDStream<Row> made(Stage stage, JavaDStream<Row> from) {
        var path = plan.path;
        var name = stage.name;
        var taken = from.filter(row -> {
            var isTaken = Plan.of(path).stages.get(name).takes(row);
            if (isTaken) Lines.count(name);
            return isTaken;
        });
        if (!stage.isStateful()) {
            return taken.flatMap(row -> {
                var found = new ArrayList<Row>();
                step(path, name).add(row, null, found::add);
                return found.iterator();
            }).cache();
        }
        var spec = StateSpec.function(keyed(path, name))
            .timeout(Durations.milliseconds(stage.sizeMs + 1000L * plan.number("kept_s")));
        return taken.mapToPair(row -> new Tuple2<>(
                tidegauge.State.prefix(0, Plan.of(path).stages.get(name), row), row))
            .mapWithState(spec).flatMap(List::iterator);
    }

    private static Function3<
            String, Optional<Row>, State<tidegauge.State.Heap>, List<Row>> keyed(
            String path, String name) {
        return (key, row, state) -> {
            var found = new ArrayList<Row>();
            if (!row.isPresent()) return found;
            var kept = state.exists() ? state.get() : new tidegauge.State.Heap();
            step(path, name).add(row.get(), kept, found::add);
            state.update(kept);
            return found;
        };
    }

    private static Step step(String path, String name) {
        var plan = Plan.of(path);
        return STEPS.computeIfAbsent(name, any -> Step.of(
            plan.stages.get(name), new Step.Setup(1000L * plan.number("kept_s"), 0, true)));
    }

    private JavaDStream<Output> copies(String name) {
        var path = plan.path;
        return records.flatMap(one -> {
            var plan = Plan.of(path);
            var isRead = plan.stages.get(name).reads.contains(plan.inputOf(one.topic()).name());
            if (!isRead || one.value() == null) return Collections.emptyIterator();
            Lines.count(name);
            return List.of(new Output(plan.outputs.get(name), one.key(), one.value())).iterator();
        });
    }

    private JavaDStream<Output> outputs(String name) {
        var path = plan.path;
        return flows.get(name).map(row -> {
            var plan = Plan.of(path);
            var stage = plan.stages.get(name);
            return new Output(plan.outputs.get(name), stage.keyOf(row).getBytes(UTF_8),
                stage.record.encode(row));
        });
    }

    /** The producer of the process. */
    private static synchronized KafkaProducer<byte[], byte[]> producer(String path) {
        if (producer == null) {
            var plan = Plan.of(path);
            var properties = new Properties();
            properties.putAll(plan.producer());
            producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer());
        }
        return producer;
    }
}
