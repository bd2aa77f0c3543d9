package tidegauge.flink;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import tidegauge.Lines;
import tidegauge.Loopback;
import tidegauge.Plan;

/**
 * A JobManager in this JVM, and TaskManagers as processes of their own. One that dies is started
 * again, as a supervisor of a real cluster would.
 */
final class Cluster {
    private static final int HEARTBEAT_MS = 500;
    /** Flink's own defaults, and what a cluster inside one JVM has for its network. */
    private static final int FRAMEWORK_MB = 128;
    private static final int METASPACE_MB = 256;
    private static final int OVERHEAD_MB = 192;
    private static final int NETWORK_MB = 64;
    private static final long RESTART_MS = 100;
    /** Exit codes from here on are of processes that a signal has ended. */
    private static final int SIGNALLED = 128;

    private static final String MOST_FAILURES = "20";
    private final Plan plan;
    private final int port;

    private Cluster(Plan plan, int port) {
        this.plan = plan;
        this.port = port;
    }

    /**
     * Add the settings of such a cluster. The job is restarted after the death of one: until the
     * JobManager notices it, tasks are deployed there in vain. Failures of its own end it. Heartbeats
     * are as frequent as such an end should be noticed.
     */
    static void configure(Configuration found, Plan plan) {
        var managers = plan.number("task_managers");
        var slots = (plan.number("parallelism") + managers - 1) / managers;
        found.setString("taskmanager.numberOfTaskSlots", String.valueOf(slots));
        found.setString("taskmanager.cpu.cores", String.valueOf(slots));
        found.setString("taskmanager.memory.framework.heap.size", FRAMEWORK_MB + " mb");
        found.setString("taskmanager.memory.task.heap.size",
            plan.number("task_manager_heap_mb") - FRAMEWORK_MB + " mb");
        found.setString("taskmanager.memory.task.off-heap.size", "0 mb");
        found.setString("taskmanager.memory.framework.off-heap.size", FRAMEWORK_MB + " mb");
        found.setString("taskmanager.memory.jvm-metaspace.size", METASPACE_MB + " mb");
        for (var end : new String[] {"min", "max"}) {
            found.setString("taskmanager.memory.network." + end, NETWORK_MB + " mb");
            found.setString("taskmanager.memory.jvm-overhead." + end, OVERHEAD_MB + " mb");
        }
        found.setString("jobmanager.rpc.port", "0");
        found.setString("rest.port", "0");
        found.setString("rest.bind-port", "0");
        found.setString("web.submit.enable", "false");
        found.setString("heartbeat.interval", HEARTBEAT_MS + " ms");
        found.setString("heartbeat.timeout", 20 * HEARTBEAT_MS + " ms");
        found.setString("restart-strategy.type", "failure-rate");
        found.setString("restart-strategy.failure-rate.max-failures-per-interval", MOST_FAILURES);
        found.setString("restart-strategy.failure-rate.failure-rate-interval", "1 min");
        found.setString("restart-strategy.failure-rate.delay", "500 ms");
    }

    /** Start it; returns an environment whose jobs it runs. */
    static StreamExecutionEnvironment start(Plan plan, Configuration configuration)
            throws Exception {
        var jobManager = new StandaloneSessionClusterEntrypoint(configuration);
        jobManager.startCluster();
        var cluster = new Cluster(plan, jobManager.getRpcPort());
        for (var i = 0; i < plan.number("task_managers"); i++) {
            Lines.daemon("task-manager-" + i, cluster::keep);
        }
        return StreamExecutionEnvironment.createRemoteEnvironment(
            "localhost", jobManager.getRestPort(), configuration);
    }

    /** Run a TaskManager, again and again. */
    private void keep() {
        try {
            while (true) {
                var process = new ProcessBuilder(command())
                    .redirectError(ProcessBuilder.Redirect.INHERIT).start();
                var hasWorked = false;
                try (var lines = process.inputReader()) {
                    for (var line = lines.readLine(); line != null; line = lines.readLine()) {
                        hasWorked |= told(line);
                    }
                }
                var code = process.waitFor();
                if (FlinkEngine.isStopping()) return;
                var end = "a TaskManager ended with exit code " + code;
                if (!hasWorked && code < SIGNALLED) throw new IllegalStateException(end);
                System.err.println(end);
                TimeUnit.MILLISECONDS.sleep(RESTART_MS);
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        } catch (IOException | RuntimeException error) {
            Lines.fail("", error);
            System.exit(1);
        }
    }

    /**
     * Add its own lines to the progress of this process, and repeat others. Returns whether it has
     * opened operators.
     */
    private static boolean told(String line) throws IOException {
        var found = Plan.JSON.readTree(line);
        if (found.get("event").asText().equals(Progress.EVENT)) return Progress.add(found);
        Lines.repeat(line);
        return false;
    }

    /** This JVM's options, but the size of its heap. */
    private List<String> command() {
        var words = new ArrayList<String>();
        words.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        for (var option : ManagementFactory.getRuntimeMXBean().getInputArguments()) {
            if (!option.startsWith("-Xms") && !option.startsWith("-Xmx")) words.add(option);
        }
        var heap = plan.number("task_manager_heap_mb") + "m";
        words.addAll(List.of("-Xms" + heap, "-Xmx" + heap,
            "-cp", System.getProperty("java.class.path"), Loopback.class.getName(),
            TaskManager.class.getName(), plan.path, String.valueOf(port)));
        return words;
    }
}
