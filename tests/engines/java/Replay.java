package tidegauge;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;

/**
 * Runs all stages of a plan on records of a file, without an engine. Prints a line per output. Rows
 * are kept for 20 s, or the plan's kept_s. Closed windows keep their records unless the plan's
 * `keeps_records` is false.
 */
public final class Replay {
    private static final Map<String, Step> STEPS = new HashMap<>();
    private static final Map<String, State> STATES = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        var plan = Plan.of(arguments[0]);
        var keptMs = 1000L * plan.json.path("kept_s").asLong(20);
        var setup = new Step.Setup(keptMs, 0, plan.json.path("keeps_records").asBoolean(true));
        for (var stage : plan.stages.values()) {
            STEPS.put(stage.name, Step.of(stage, setup));
            STATES.put(stage.name, new State.Heap());
        }
        var pacer = new Pacer(0);
        for (var line : Files.readAllLines(Path.of(arguments[1]))) {
            var record = Plan.JSON.readTree(line);
            var ms = record.get("timestamp").asLong();
            var value = Base64.getDecoder().decode(record.get("value").asText());
            var row = plan.row(
                record.get("topic").asText(), 0, record.get("offset").asLong(), ms, value);
            pacer.before("", ms, ms, clock -> flow(plan, "", clock));
            if (row == null) continue;
            Closings.ofProcess().seen(row);
            flow(plan, "", row);
        }
    }

    private static void flow(Plan plan, String from, Row row) {
        for (var stage : plan.stages.values()) {
            var read = stage.reads.get(0);
            if (!from.equals(plan.inputs.containsKey(read) ? "" : read)) continue;
            if (row.isClock()) {
                STEPS.get(stage.name).clock(row.appendedMs, STATES.get(stage.name),
                    made -> publish(plan, stage, made));
                flow(plan, stage.name, row);
            } else if (stage.takes(row)) {
                STEPS.get(stage.name).add(
                    row, STATES.get(stage.name), made -> publish(plan, stage, made));
            }
        }
    }

    private static void publish(Plan plan, Stage stage, Row row) {
        if (stage.record != null && plan.outputs.containsKey(stage.name)) {
            var said = new TreeMap<String, String>();
            said.put("stage", stage.name);
            said.put("key", stage.keyOf(row));
            said.put("value", Base64.getEncoder().encodeToString(stage.record.encode(row)));
            try {
                System.out.println(Plan.JSON.writeValueAsString(said));
            } catch (com.fasterxml.jackson.core.JsonProcessingException error) {
                throw new IllegalStateException(error);
            }
        }
        flow(plan, stage.name, row);
    }
}
