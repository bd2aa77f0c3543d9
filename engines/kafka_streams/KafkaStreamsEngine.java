package tidegauge;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

/** Runs the stages of a plan as one Kafka Streams application. */
public final class KafkaStreamsEngine {
    private static final Duration CLOSE = Duration.ofSeconds(10);

    private KafkaStreamsEngine() {}

    public static void main(String[] arguments) throws Exception {
        Lines.begin();
        var plan = Plan.of(arguments[arguments.length - 1]);
        var reached = Offsets.commitFirst(plan);
        var isDsl = plan.choice("implementation").equals("dsl");
        if (plan.usesEventTime()) Closings.ofProcess().restore(plan, reached);
        var processors = new Processors(plan, Offsets.next(plan, reached));
        var topology = isDsl ? new Dsl(plan).topology() : processors.topology();
        var streams = new KafkaStreams(topology, settings(plan));
        streams.setUncaughtExceptionHandler(error -> {
            Lines.fail("", error);
            return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) Lines.ready(detail(plan));
            if (now == KafkaStreams.State.ERROR) Lines.daemon("end", () -> System.exit(1));
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(CLOSE)));
        streams.start();
        Lines.progress(plan, () -> lags(streams),
            stage -> isDsl ? -1 : processors.stateRows(stage));
    }

    private static Map<String, Object> detail(Plan plan) {
        return Map.of("implementation", plan.choice("implementation"),
            "guarantee", plan.choice("guarantee"));
    }

    static Properties settings(Plan plan) {
        var found = plan.kafka();
        found.put(StreamsConfig.APPLICATION_ID_CONFIG, plan.group());
        found.put(StreamsConfig.STATE_DIR_CONFIG, plan.text("folder") + "/state");
        found.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, plan.number("threads"));
        found.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        found.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, plan.number("commit_interval_ms"));
        found.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG,
            plan.choice("guarantee").equals("exactly-once")
                ? StreamsConfig.EXACTLY_ONCE_V2 : StreamsConfig.AT_LEAST_ONCE);
        var producer = plan.producer();
        for (var name : List.of("linger.ms", "batch.size", "compression.type")) {
            found.put(StreamsConfig.producerPrefix(name), producer.get(name));
        }
        found.put(StreamsConfig.MAX_TASK_IDLE_MS_CONFIG, (long) plan.number("max_task_idle_ms"));
        found.put(StreamsConfig.mainConsumerPrefix("auto.offset.reset"), "earliest");
        found.put(StreamsConfig.producerPrefix("enable.metrics.push"), false);
        found.put(StreamsConfig.consumerPrefix("enable.metrics.push"), false);
        found.put(StreamsConfig.ENABLE_METRICS_PUSH_CONFIG, false);
        // Static membership: a restarted program immediately replaces the one that was killed.
        found.put(StreamsConfig.mainConsumerPrefix("group.instance.id"), "program");
        if (plan.choice("store").equals("memory")) {
            found.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
                BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        }
        found.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.NO_OPTIMIZATION);
        return found;
    }

    /** Unread records by topic; only topics that were read from. */
    private static Map<String, Long> lags(KafkaStreams streams) {
        var found = new HashMap<String, Long>();
        streams.metrics().forEach((name, metric) -> {
            if (name.name().equals("records-lag") && name.tags().containsKey("topic")
                    && metric.metricValue() instanceof Double lag && !lag.isNaN()) {
                found.merge(name.tags().get("topic"), Math.max(0, lag.longValue()), Long::sum);
            }
        });
        return found;
    }
}
