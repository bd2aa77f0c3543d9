package tidegauge;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.spark.SparkConf;
import org.apache.spark.streaming.Durations;
import org.apache.spark.streaming.api.java.JavaStreamingContext;
import org.apache.spark.streaming.api.java.JavaStreamingListener;
import org.apache.spark.streaming.api.java.JavaStreamingListenerBatchCompleted;
import org.apache.spark.streaming.api.java.JavaStreamingListenerWrapper;
import org.apache.spark.streaming.kafka010.ConsumerStrategies;
import org.apache.spark.streaming.kafka010.HasOffsetRanges;
import org.apache.spark.streaming.kafka010.KafkaUtils;
import org.apache.spark.streaming.kafka010.LocationStrategies;

/** Runs the stages of a plan on Spark's discretised streams, in small batches. */
public final class DStreamsEngine {
    /** Next offset by partition. */
    private static final Map<TopicPartition, Long> READ = new ConcurrentHashMap<>();

    private DStreamsEngine() {}

    public static void main(String[] arguments) throws Exception {
        Lines.begin();
        var plan = Plan.of(arguments[arguments.length - 1]);
        var checkpoints = plan.text("folder") + "/checkpoint";
        var context = JavaStreamingContext.getOrCreate(checkpoints, () -> context(plan));
        Lines.haltAtEnd();
        var isReady = new AtomicBoolean();
        context.addStreamingListener(new JavaStreamingListenerWrapper(new JavaStreamingListener() {
            @Override
            public void onBatchCompleted(JavaStreamingListenerBatchCompleted batch) {
                if (!isReady.getAndSet(true)) {
                    Lines.ready(Map.of("batch_interval_ms", plan.number("batch_interval_ms")));
                }
            }
        }));
        var delays = new TaskDelays();
        context.ssc().sparkContext().addSparkListener(delays);
        var admin = Admin.create(plan.kafka());
        Lines.progress(plan, () -> {
            Lines.tasks(delays.takeCounts());
            try {
                return Offsets.lags(admin, plan, READ);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                return Map.of();
            }
        }, stage -> -1);
        try {
            context.start();
            context.awaitTermination();
        } catch (Exception error) {  // including checked exceptions of the batch
            Lines.fail("", error);
            System.exit(1);
        }
    }

    private static JavaStreamingContext context(Plan plan) {
        var folder = plan.text("folder");
        var conf = new SparkConf().setAppName(plan.group())
            .setMaster("local[" + plan.number("threads") + "]")
            .set("spark.ui.enabled", "false")
            .set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
            .set("spark.local.dir", folder + "/local")
            .set("spark.locality.wait", "0")
            .set("spark.default.parallelism", plan.choice("partitions"))
            .set("spark.streaming.kafka.maxRatePerPartition",
                plan.choice("max_rate_per_partition"));
        var context = new JavaStreamingContext(
            conf, Durations.milliseconds(plan.number("batch_interval_ms")));
        context.checkpoint(folder + "/checkpoint");
        var kafka = new HashMap<String, Object>();
        plan.kafka().forEach((name, value) -> kafka.put(name.toString(), value));
        kafka.put("group.id", plan.group());
        kafka.put("key.deserializer", ByteArrayDeserializer.class);
        kafka.put("value.deserializer", ByteArrayDeserializer.class);
        kafka.put("enable.auto.commit", false);
        var starts = Offsets.starts(plan);
        var records = KafkaUtils.createDirectStream(context, LocationStrategies.PreferConsistent(),
            ConsumerStrategies.<byte[], byte[]>Assign(
                new ArrayList<>(starts.keySet()), kafka, starts));
        records.foreachRDD(batch -> {
            for (var range : ((HasOffsetRanges) batch.rdd()).offsetRanges()) {
                READ.put(range.topicPartition(), range.untilOffset());
            }
        });
        new Batches(plan, records).publish();
        return context;
    }
}
