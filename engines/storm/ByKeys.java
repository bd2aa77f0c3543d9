package tidegauge;

import java.util.List;
import java.util.Objects;
import org.apache.storm.generated.GlobalStreamId;
import org.apache.storm.grouping.CustomStreamGrouping;
import org.apache.storm.task.WorkerTopologyContext;

/** Rows with the same stage keys go to one task, a clock to all. */
final class ByKeys implements CustomStreamGrouping {
    private static final long serialVersionUID = 1;
    private final String path;
    private final String name;
    private transient Stage stage;
    private transient List<Integer> tasks;

    ByKeys(String path, String name) {
        this.path = path;
        this.name = name;
    }

    @Override
    public void prepare(WorkerTopologyContext context, GlobalStreamId stream, List<Integer> given) {
        stage = Plan.of(path).stages.get(name);
        tasks = given;
    }

    @Override
    public List<Integer> chooseTasks(int from, List<Object> values) {
        var row = (Row) values.get(0);
        if (row.isClock()) return tasks;
        if (tasks.size() == 1) return tasks;
        var hash = Objects.hash(stage.keys.stream().map(row::get).toArray());
        return List.of(tasks.get(Math.floorMod(hash, tasks.size())));
    }
}
