package tidegauge;

import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.TaskInfo;

/**
 * Counts ended tasks by their scheduler delay as Spark defines it: the time from the launch of a
 * task until its end in which it was neither prepared nor run, nor its result written or fetched.
 *
 * <p>Spark's driver in Python has no Java compiler: there Janino compiles this file, which knows
 * neither lambdas nor type arguments of methods.
 */
public class TaskDelays extends SparkListener {
    /** Longer delays count as this one, milliseconds. */
    private static final int MOST_MS = 10000;

    private int[] counts = new int[MOST_MS + 1];
    private int tasks;

    public synchronized void onTaskEnd(SparkListenerTaskEnd ended) {
        TaskInfo info = ended.taskInfo();
        TaskMetrics of = ended.taskMetrics();
        if (info == null || of == null || !info.successful()) return;
        long fetched = info.gettingResultTime() > 0
            ? info.finishTime() - info.gettingResultTime() : 0;
        long delay = info.finishTime() - info.launchTime() - of.executorRunTime()
            - of.executorDeserializeTime() - of.resultSerializationTime() - fetched;
        counts[(int) Math.max(0, Math.min(MOST_MS, delay))]++;
        tasks++;
    }

    /** Delays in milliseconds and tasks with each since the last call: `3:17 4:2`; empty without. */
    public synchronized String takeCounts() {
        StringBuilder text = new StringBuilder();
        for (int delay = 0; tasks > 0 && delay <= MOST_MS; delay++) {
            if (counts[delay] == 0) continue;
            if (text.length() > 0) text.append(' ');
            text.append(delay).append(':').append(counts[delay]);
            tasks -= counts[delay];
            counts[delay] = 0;
        }
        return text.toString();
    }
}
