package tidegauge.flink;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.admin.Admin;
import tidegauge.Lines;
import tidegauge.Offsets;
import tidegauge.Plan;

/**
 * Runs the stages of a plan as one job of Flink's DataStream API, on a cluster in this JVM or with
 * TaskManagers in their own.
 */
public final class FlinkEngine {
    private static final long POLL_MS = 50;
    private static final long STOP_S = 5;

    private FlinkEngine() {}

    public static void main(String[] arguments) throws Exception {
        Lines.begin();
        var plan = Plan.of(arguments[arguments.length - 1]);
        var flink = environment(plan);
        var operators = new Topology(plan, flink).build();
        JobClient job;
        try {
            job = flink.executeAsync(plan.group());
        } catch (Exception error) {
            Lines.fail("", error);
            System.exit(1);
            return;
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(plan, job)));
        job.getJobExecutionResult().whenComplete((result, error) -> {
            if (error == null || isStopping) return;
            Lines.fail("", error);
            Lines.daemon("end", () -> System.exit(1));
        });
        while (Progress.operators() < operators) TimeUnit.MILLISECONDS.sleep(POLL_MS);
        Lines.ready(Map.of("guarantee", plan.choice("guarantee"), "state", plan.choice("state")));
        var admin = Admin.create(plan.kafka());
        Lines.progress(plan, () -> lags(admin, plan), stage -> -1);
        Thread.currentThread().join();
    }

    private static StreamExecutionEnvironment environment(Plan plan) throws Exception {
        var configuration = configuration(plan);
        var parallelism = plan.number("parallelism");
        if (plan.number("task_managers") == 0) {
            return StreamExecutionEnvironment.createLocalEnvironment(parallelism, configuration);
        }
        return Cluster.start(plan, configuration).setParallelism(parallelism);
    }

    private static volatile boolean isStopping;

    static boolean isStopping() {
        return isStopping;
    }

    /** With transactions the job is cancelled, so that it aborts those that are open. */
    private static void stop(Plan plan, JobClient job) {
        isStopping = true;
        if (!plan.choice("guarantee").equals("exactly-once")) return;
        try {
            job.cancel().get(STOP_S, TimeUnit.SECONDS);
            job.getJobExecutionResult().get(STOP_S, TimeUnit.SECONDS);
        } catch (ExecutionException | java.util.concurrent.TimeoutException error) {
            System.err.println("the job ended: " + error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private static Map<String, Long> lags(Admin admin, Plan plan) {
        try {
            return Offsets.lags(admin, plan, Progress.read());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return Map.of();
        }
    }

    static Configuration configuration(Plan plan) throws IOException {
        var folder = Path.of(plan.text("folder"));
        var scratch = Files.createDirectories(folder.resolve("scratch"));
        var found = new Configuration();
        var bufferMs = plan.number("buffer_timeout_ms");
        found.setString("execution.buffer-timeout.enabled", String.valueOf(bufferMs >= 0));
        found.setString("execution.buffer-timeout.interval", Math.max(0, bufferMs) + " ms");
        found.setString("pipeline.object-reuse", "true");
        found.setString("pipeline.generic-types", "false");
        found.setString("pipeline.auto-watermark-interval",
            plan.number("watermark_interval_ms") + " ms");
        found.setString("state.backend.type", plan.choice("state"));
        found.setString("taskmanager.memory.managed.size", plan.number("managed_mb") + " mb");
        found.setString("io.tmp.dirs", scratch.toString());
        found.setString("taskmanager.numberOfTaskSlots", String.valueOf(plan.number("parallelism")));
        found.setString("restart-strategy.type", "none");
        if (plan.number("task_managers") > 0) Cluster.configure(found, plan);
        for (var name : new String[] {"jobmanager.bind-host", "taskmanager.bind-host",
                "rest.address", "rest.bind-address", "taskmanager.host", "jobmanager.rpc.address"}) {
            found.setString(name, "localhost");
        }
        if (plan.number("checkpoint_interval_ms") == 0) return found;
        var checkpoints = folder.resolve("checkpoints");
        found.setString("execution.checkpointing.interval",
            plan.number("checkpoint_interval_ms") + " ms");
        found.setString("execution.checkpointing.storage", "filesystem");
        found.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
        found.setString("execution.checkpointing.externalized-checkpoint-retention",
            "RETAIN_ON_CANCELLATION");
        newest(checkpoints).ifPresent(path -> {
            found.setString("execution.state-recovery.path", path.toString());
            found.setString("execution.state-recovery.claim-mode", "CLAIM");
        });
        return found;
    }

    /** The newest complete checkpoint of any job. */
    static Optional<URI> newest(Path checkpoints) throws IOException {
        if (!Files.isDirectory(checkpoints)) return Optional.empty();
        try (var files = Files.walk(checkpoints, 3)) {
            return files.filter(file -> file.endsWith("_metadata") && file.toFile().length() > 0)
                .max(Comparator.comparingLong(file -> file.toFile().lastModified()))
                .map(file -> file.getParent().toUri());
        }
    }
}
