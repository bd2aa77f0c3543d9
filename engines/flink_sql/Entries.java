package tidegauge.flink;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.table.functions.ScalarFunction;

/**
 * The table of a lookup stage, read from the plan. An SQL function: (plan file, stage, column
 * index, key) returns the value; null if the key has no row.
 */
public final class Entries {
    private Entries() {}

    /** For text columns. */
    public static final class Text extends ScalarFunction {
        private static final long serialVersionUID = 1L;

        private transient Map<String, JsonNode> rows;

        public String eval(String plan, String stage, Integer column, String key) throws IOException {
            rows = rows == null ? read(plan, stage) : rows;
            JsonNode row = rows.get(key);
            return row == null ? null : row.get(column).textValue();
        }
    }

    /** For numeric columns. */
    public static final class Number extends ScalarFunction {
        private static final long serialVersionUID = 1L;

        private transient Map<String, JsonNode> rows;

        public Double eval(String plan, String stage, Integer column, String key) throws IOException {
            rows = rows == null ? read(plan, stage) : rows;
            JsonNode row = rows.get(key);
            return row == null ? null : (Double) row.get(column).doubleValue();
        }
    }

    private static Map<String, JsonNode> read(String plan, String stage) throws IOException {
        Map<String, JsonNode> rows = new HashMap<>();
        for (JsonNode spec : new ObjectMapper().readTree(new File(plan)).at("/domain/stages")) {
            if (spec.get("name").textValue().equals(stage)) {
                spec.at("/table/rows").properties().forEach(e -> rows.put(e.getKey(), e.getValue()));
            }
        }
        return rows;
    }
}
