package tidegauge.flink;

import java.io.IOException;
import java.util.concurrent.TimeUnit;
import org.apache.flink.runtime.taskexecutor.TaskManagerRunner;
import tidegauge.Lines;
import tidegauge.Plan;

/** A TaskManager in a process of its own, which ends with the JobManager: `PLAN PORT`. */
public final class TaskManager {
    private static final long LOOK_MS = 50;
    private static final long TELL_MS = 1_000;

    private TaskManager() {}

    public static void main(String[] arguments) throws IOException {
        Lines.begin();
        Lines.haltAtEnd();
        var plan = Plan.of(arguments[0]);
        var configuration = FlinkEngine.configuration(plan);
        configuration.setString("jobmanager.rpc.port", arguments[1]);
        Lines.daemon("progress", () -> tell(plan));
        TaskManagerRunner.runTaskManagerProcessSecurely(configuration);
    }

    /** Tell the JobManager's process once a second, and when operators were opened. */
    private static void tell(Plan plan) {
        var toldNs = System.nanoTime();
        Lines.say(Progress.taken(plan));
        try {
            while (true) {
                TimeUnit.MILLISECONDS.sleep(LOOK_MS);
                var isDue = System.nanoTime() - toldNs >= TimeUnit.MILLISECONDS.toNanos(TELL_MS);
                if (!isDue && Progress.operators() == 0) continue;
                toldNs = System.nanoTime();
                Lines.say(Progress.taken(plan));
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
