import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import tidegauge.Codec;
import tidegauge.Lines;
import tidegauge.Plan;

/**
 * Parse, join and tumbling window of the domain traffic by Flink's DataStream API, with the types and
 * the state that one would write for these records alone.
 */
public final class PlainFlink {
    private static final int HEADER_BYTES = 10;

    /** A record of an input. */
    public static final class Reading {
        public boolean isFlow;
        public String id;
        public String lane;
        public int lanes;
        public double latitude;
        public double longitude;
        public long observedMs;
        public int periodS;
        public int accuracy;
        public double value;
        public long sequence;
        public String run;
    }

    /** Flow and speed of a lane. */
    public static final class Pair {
        public String run;
        public String id;
        public String lane;
        public int lanes;
        public long observedMs;
        public int flow;
        public double speed;
    }

    /** Sums of a window. */
    public static final class Sums {
        public String run;
        public String id;
        public long startMs;
        public int flows;
        public int speeds;
        public long flow;
        public double speed;
    }

    private PlainFlink() {}

    public static void main(String[] arguments) throws Exception {
        Lines.begin();
        var plan = Plan.of(arguments[arguments.length - 1]);
        var configuration = new Configuration();
        configuration.setString("pipeline.object-reuse", "true");
        configuration.setString("execution.checkpointing.interval",
            plan.number("checkpoint_interval_ms") + " ms");
        for (var name : new String[] {"jobmanager.bind-host", "taskmanager.bind-host",
                "rest.address", "rest.bind-address", "taskmanager.host", "jobmanager.rpc.address"}) {
            configuration.setString(name, "localhost");
        }
        var flink = StreamExecutionEnvironment.createLocalEnvironment(1, configuration);
        var offsets = new HashMap<TopicPartition, Long>();
        plan.startOffsets().forEach((topic, starts) -> {
            for (var i = 0; i < starts.length; i++) {
                offsets.put(new TopicPartition(topic, i), starts[i]);
            }
        });
        var source = KafkaSource.<Reading>builder().setProperties(plan.kafka())
            .setTopics(plan.topics()).setGroupId(plan.group())
            .setStartingOffsets(OffsetsInitializer.offsets(offsets))
            .setDeserializer(new Decoder(plan.inputs.get("flow").topic())).build();
        var readings = flink.fromSource(source, WatermarkStrategy.noWatermarks(), "input");
        for (var output : plan.outputs.entrySet()) {
            var encoder = new Encoder(plan, output.getKey());
            switch (output.getKey()) {
                case "parse" -> publish(readings, plan, encoder, PlainFlink::parsed, r -> r.id);
                case "join" -> publish(readings.keyBy(one -> one.id).process(new Join()),
                    plan, encoder, PlainFlink::joined, pair -> pair.id);
                case "tumbling" -> publish(readings.keyBy(one -> one.id).process(new Tumbling()),
                    plan, encoder, PlainFlink::summed, sums -> sums.id);
                default -> throw new IllegalArgumentException(output.getKey());
            }
        }
        flink.executeAsync(plan.group());
        Lines.ready(Map.of());
        Thread.currentThread().join();
    }

    private interface Columns<T> extends java.io.Serializable {
        Object[] of(T value);
    }

    private interface Text<T> extends java.io.Serializable {
        String of(T value);
    }

    private static <T> void publish(DataStream<T> stream, Plan plan, Encoder encoder,
            Columns<T> columns, Text<T> key) {
        stream.sinkTo(KafkaSink.<T>builder().setKafkaProducerConfig(plan.producer())
            .setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
            .setRecordSerializer(new KafkaRecordSerializationSchema<T>() {
                @Override
                public ProducerRecord<byte[], byte[]> serialize(
                        T value, KafkaSinkContext context, Long timestamp) {
                    return encoder.record(key.of(value), columns.of(value));
                }
            }).build());
    }

    private static Object[] parsed(Reading one) {
        return new Object[] {one.run, one.sequence, one.id, one.lane, one.lanes, one.latitude,
            one.longitude, one.observedMs, one.periodS, one.accuracy,
            one.isFlow ? (int) one.value : null, one.isFlow ? null : one.value};
    }

    private static Object[] joined(Pair pair) {
        return new Object[] {pair.run, pair.id, pair.lane, pair.lanes, pair.observedMs, pair.flow,
            pair.speed};
    }

    private static Object[] summed(Sums sums) {
        return new Object[] {sums.run, sums.id, sums.startMs, sums.startMs + 1000, sums.flows,
            sums.flow, sums.speed / sums.speeds};
    }

    /** Encodes the rows of a stage. */
    private static final class Encoder implements java.io.Serializable {
        private static final long serialVersionUID = 1;
        private final String path;
        private final String stage;
        private transient Codec codec;
        private transient String topic;

        Encoder(Plan plan, String stage) {
            path = plan.path;
            this.stage = stage;
        }

        ProducerRecord<byte[], byte[]> record(String key, Object[] values) {
            if (codec == null) {
                codec = Plan.of(path).stages.get(stage).record;
                topic = Plan.of(path).outputs.get(stage);
            }
            return new ProducerRecord<>(
                topic, key.getBytes(StandardCharsets.UTF_8), codec.encode(values));
        }
    }

    /** Decodes the Avro of both inputs, whose columns differ in the value alone. */
    private static final class Decoder implements KafkaRecordDeserializationSchema<Reading> {
        private static final long serialVersionUID = 1;
        private final String flow;

        Decoder(String flow) {
            this.flow = flow;
        }

        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Reading> out) {
            var in = ByteBuffer.wrap(record.value()).order(ByteOrder.LITTLE_ENDIAN)
                .position(HEADER_BYTES);
            var one = new Reading();
            one.isFlow = record.topic().equals(flow);
            one.id = text(in);
            one.lane = text(in);
            one.lanes = (int) number(in);
            one.latitude = in.getDouble();
            one.longitude = in.getDouble();
            one.observedMs = number(in);
            one.periodS = (int) number(in);
            one.accuracy = (int) number(in);
            one.value = one.isFlow ? number(in) : in.getDouble();
            one.sequence = number(in);
            one.run = text(in);
            out.collect(one);
        }

        private static long number(ByteBuffer in) {
            long found = 0;
            for (var shift = 0; ; shift += 7) {
                var next = in.get();
                found |= (next & 0x7fL) << shift;
                if (next >= 0) return (found >>> 1) ^ -(found & 1);
            }
        }

        private static String text(ByteBuffer in) {
            var size = (int) number(in);
            var found = new String(in.array(), in.position(), size, StandardCharsets.UTF_8);
            in.position(in.position() + size);
            return found;
        }

        @Override
        public TypeInformation<Reading> getProducedType() {
            return TypeInformation.of(Reading.class);
        }
    }

    /** The second record of a lane and time publishes the pair. */
    private static final class Join extends KeyedProcessFunction<String, Reading, Pair> {
        private static final long serialVersionUID = 1;
        private transient MapState<String, Reading> waiting;

        @Override
        public void open(OpenContext context) {
            waiting = getRuntimeContext().getMapState(
                new MapStateDescriptor<>("waiting", String.class, Reading.class));
        }

        @Override
        public void processElement(Reading one, Context context, Collector<Pair> out)
                throws Exception {
            var key = one.observedMs + one.lane;
            var other = waiting.get(key);
            if (other == null || other.isFlow == one.isFlow) {
                waiting.put(key, one);
                return;
            }
            waiting.remove(key);
            var flow = one.isFlow ? one : other;
            var pair = new Pair();
            pair.run = one.run;
            pair.id = one.id;
            pair.lane = one.lane;
            pair.lanes = Math.max(one.lanes, other.lanes);
            pair.observedMs = one.observedMs;
            pair.flow = (int) flow.value;
            pair.speed = (one.isFlow ? other : one).value;
            out.collect(pair);
        }
    }

    /** A window of a second is published when all of its lanes have both records. */
    private static final class Tumbling extends KeyedProcessFunction<String, Reading, Sums> {
        private static final long serialVersionUID = 1;
        private transient MapState<Long, Sums> windows;

        @Override
        public void open(OpenContext context) {
            windows = getRuntimeContext().getMapState(
                new MapStateDescriptor<>("windows", Long.class, Sums.class));
        }

        @Override
        public void processElement(Reading one, Context context, Collector<Sums> out)
                throws Exception {
            var startMs = Math.floorDiv(one.observedMs, 1000L) * 1000;
            var sums = windows.get(startMs);
            if (sums == null) {
                sums = new Sums();
                sums.run = one.run;
                sums.id = one.id;
                sums.startMs = startMs;
            }
            if (one.isFlow) {
                sums.flows++;
                sums.flow += (long) one.value;
            } else {
                sums.speeds++;
                sums.speed += one.value;
            }
            if (sums.flows < one.lanes || sums.speeds < one.lanes) {
                windows.put(startMs, sums);
                return;
            }
            windows.remove(startMs);
            out.collect(sums);
        }
    }
}
