package tidegauge;

import com.fasterxml.jackson.core.JsonProcessingException;
import java.io.IOException;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Supplier;
import java.util.function.ToLongFunction;

/** Output lines of the program, and the signal to exit. */
public final class Lines {
    private static final long PROGRESS_EVERY_MS = 1_000;
    /** Maximum number of bytes reported of an undecodable value. */
    private static final int VALUE_BYTES = 100_000;
    private static final Map<String, LongAdder> READ = new ConcurrentHashMap<>();
    private static PrintStream out = System.out;
    private static volatile int status;

    private Lines() {}

    /** Reserve standard output for the lines; exit at the end of standard input. */
    public static void begin() {
        out = System.out;
        System.setOut(System.err);
        daemon("standard-input", () -> {
            try {
                while (System.in.read() >= 0) continue;
            } catch (IOException error) {
                System.err.println("standard input: " + error);
            }
            status = 1;
            System.exit(1);
        });
    }

    /** Exit immediately when told to: files of libraries are deleted with the pipeline's folder. */
    public static void haltAtEnd() {
        Runtime.getRuntime().addShutdownHook(
            new Thread(() -> Runtime.getRuntime().halt(status)));
    }

    /** For library threads without another way: exit without reporting the error twice. */
    public static void fail(String stage, Throwable error) {
        status = 1;
        error.printStackTrace();
        var root = error;
        while (root.getCause() != null && root.getCause() != root) root = root.getCause();
        say(Map.of("event", "failed", "stage", stage, "reason", String.valueOf(root)));
    }

    public static void ready(Map<String, Object> detail) {
        var all = new LinkedHashMap<String, Object>(detail);
        all.put("java", System.getProperty("java.version"));
        say(Map.of("event", "ready", "detail", all));
    }

    /** Report an undecodable value of an input, so that it is stored. */
    public static void undecodable(String topic, int partition, long offset, byte[] value) {
        var line = new LinkedHashMap<String, Object>();
        line.put("event", "undecodable");
        line.put("topic", topic);
        line.put("partition", partition);
        line.put("offset", offset);
        if (value != null) {
            var told = Arrays.copyOf(value, Math.min(value.length, VALUE_BYTES));
            line.put("value", Base64.getEncoder().encodeToString(told));
            line.put("bytes", value.length);
        }
        say(line);
    }

    /** Report ended tasks by scheduler delay: pairs of milliseconds and a number, `3:17 4:2`. */
    public static void tasks(String counts) {
        if (counts.isEmpty()) return;
        var delays = new ArrayList<Integer>();
        var tasks = new ArrayList<Integer>();
        for (var pair : counts.split(" ")) {
            var colon = pair.indexOf(':');
            delays.add(Integer.valueOf(pair.substring(0, colon)));
            tasks.add(Integer.valueOf(pair.substring(colon + 1)));
        }
        say(Map.of("event", "tasks", "delays_ms", delays, "tasks", tasks));
    }

    /** Count a row that arrived at a stage. */
    public static void count(String stage) {
        counter(stage).increment();
    }

    /** The counter of the rows that arrive at a stage. */
    public static LongAdder counter(String stage) {
        return READ.computeIfAbsent(stage, any -> new LongAdder());
    }

    /** Report once a second what each stage did. lags: unread records by topic. */
    public static void progress(
            Plan plan, Supplier<Map<String, Long>> lags, ToLongFunction<String> stateRows) {
        daemon("progress", () -> {
            try {
                while (true) {
                    TimeUnit.MILLISECONDS.sleep(PROGRESS_EVERY_MS);
                    var known = lags.get();
                    plan.outputs.keySet().forEach(
                        stage -> say(progressOf(plan, plan.stages.get(stage), known, stateRows)));
                }
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        });
    }

    private static Map<String, Object> progressOf(
            Plan plan, Stage stage, Map<String, Long> lags, ToLongFunction<String> stateRows) {
        var line = new LinkedHashMap<String, Object>();
        line.put("event", "progress");
        line.put("stage", stage.name);
        line.put("input_rows", counter(stage.name).sumThenReset());
        var topics = stage.inputs.stream().map(name -> plan.inputs.get(name).topic()).toList();
        if (lags.keySet().containsAll(topics)) {
            line.put("lag_records", topics.stream().mapToLong(lags::get).sum());
        }
        if (stage.isStateful()) {
            var rows = stateRows.applyAsLong(stage.name);
            if (rows >= 0) line.put("state_rows", rows);
        }
        return line;
    }

    /** Print a line. */
    public static void say(Map<String, Object> line) {
        try {
            repeat(Plan.JSON.writeValueAsString(line));
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Print the line of another process. */
    public static synchronized void repeat(String line) {
        out.println(line);
        out.flush();
    }

    /** A daemon thread. */
    public static Thread daemon(String name, Runnable work) {
        var thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }
}
