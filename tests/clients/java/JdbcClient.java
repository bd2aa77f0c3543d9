import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * ClickHouse's JDBC driver, as DBeaver, DataGrip, Metabase and Tableau use it: the metadata of JDBC
 * and the queries of these tools. Arguments: the version of the driver, and v1 or v2.
 */
public final class JdbcClient {
    private interface Operation {
        Object run() throws Exception;
    }

    private final Map<String, Object> task;
    private final String database;
    private final PrintStream out;

    private JdbcClient(Map<String, Object> task, PrintStream out) {
        this.task = task;
        this.database = text("database");
        this.out = out;
    }

    /** Reads the task from standard input. */
    public static void main(String[] arguments) throws Exception {
        System.setProperty("clickhouse.jdbc.v1", String.valueOf(arguments[1].equals("v1")));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        String given = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        Object task = new Json(given).value();
        Class.forName("com.clickhouse.jdbc.ClickHouseDriver");
        new JdbcClient(asMap(task), out).runAll(arguments[1].equals("v1"));
        System.exit(0);
    }

    private void runAll(boolean first) {
        run("connect_without_password", this::connectWithoutPassword);
        run("connect_as_reader", () -> single(reader(), "SELECT 1"));
        run("version", this::version);
        run("catalogs", this::catalogs);
        run("schemas", this::schemas);
        run("tables", this::tables);
        run("columns", this::columns);
        run("keys", this::keys);
        run("functions", this::functions);
        run("views", this::views);
        run("types", this::types);
        run("client_parameters", this::clientParameters);
        run("server_parameters", first ? this::serverParametersV1 : this::serverParameters);
        run("limit", this::limit);
        run("timeout", this::timeout);
        run("cancel", this::cancel);
        run("stream", this::stream);
        run("wrong_sql", () -> refusal(text("wrong")));
        run("write_refused", () -> refusal(text("write")));
    }

    private void run(String name, Operation operation) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("operation", name);
        try {
            line.put("detail", operation.run());
            line.put("ok", true);
        } catch (Throwable error) {
            line.put("detail", error + causes(error));
            line.put("ok", false);
        }
        out.println(Json.text(line));
    }

    private static String causes(Throwable error) {
        StringBuilder found = new StringBuilder();
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
            found.append(" <- ").append(cause);
        }
        return found.toString();
    }

    private Connection open(String user, String password, Map<String, String> options)
            throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", user);
        properties.setProperty("password", password);
        options.forEach(properties::setProperty);
        String place = text("host") + ":" + ((Number) task.get("port")).intValue();
        return DriverManager.getConnection("jdbc:clickhouse://" + place + "/" + database, properties);
    }

    private Connection reader() throws SQLException {
        return open(text("user"), text("password"), Map.of());
    }

    private Object connectWithoutPassword() throws SQLException {
        try (Connection connection = open("default", "", Map.of())) {
            return single(connection, "SELECT 1");
        }
    }

    private Object version() throws SQLException {
        try (Connection connection = reader()) {
            DatabaseMetaData about = connection.getMetaData();
            about.getDatabaseMajorVersion();
            about.getDriverVersion();
            return about.getDatabaseProductVersion();
        }
    }

    private Object catalogs() throws SQLException {
        return tree("catalogs", (about, found) -> collect(about.getCatalogs(), 1, found));
    }

    private Object schemas() throws SQLException {
        return tree("schemas", (about, found) -> {
            collect(about.getSchemas(), 1, found);
            collect(about.getSchemas(null, "%"), 1, found);
        });
    }

    private Object tables() throws SQLException {
        String[] kinds = {
            "TABLE", "VIEW", "FOREIGN TABLE", "REMOTE TABLE", "DICTIONARY", "MATERIALIZED VIEW",
            "MEMORY TABLE", "LOG TABLE",
        };
        return tree("tables", (about, found) -> {
            collect(about.getTableTypes(), 1, new LinkedHashSet<>());
            collect(about.getTypeInfo(), 1, new LinkedHashSet<>());
            collect(about.getTables(null, database, "%", kinds), 3, found);
            collect(about.getTables(null, "%", "%", null), 3, found);
        });
    }

    private Object columns() throws SQLException {
        return tree("columns", (about, found) -> {
            collect(about.getColumns(null, database, text("view"), "%"), 4, found);
            collect(about.getColumns(null, "%", "%", "%"), 4, found);
        });
    }

    private Object keys() throws SQLException {
        String table = text("table");
        return tree("keys", (about, found) -> {
            collect(about.getPrimaryKeys(null, database, table), 4, found);
            Set<String> others = new LinkedHashSet<>();
            collect(about.getImportedKeys(null, database, table), 4, others);
            collect(about.getExportedKeys(null, database, table), 4, others);
            collect(about.getIndexInfo(null, database, table, false, true), 6, others);
            collect(about.getBestRowIdentifier(null, database, table, 0, true), 2, others);
        });
    }

    private Object functions() throws SQLException {
        return tree("functions", (about, found) -> {
            collect(about.getFunctions(null, null, "%"), 3, found);
            collect(about.getProcedures(null, null, "%"), 3, new LinkedHashSet<>());
            about.getNumericFunctions();
            about.getSQLKeywords();
        });
    }

    private interface Metadata {
        void collect(DatabaseMetaData about, Set<String> found) throws SQLException;
    }

    private List<String> tree(String operation, Metadata metadata) throws SQLException {
        Set<String> found = new LinkedHashSet<>();
        try (Connection connection = reader()) {
            metadata.collect(connection.getMetaData(), found);
            for (Object sql : (List<?>) asMap(task.get("trees")).get(operation)) {
                try (Statement statement = connection.createStatement()) {
                    collect(statement.executeQuery(sql.toString()), 1, found);
                } catch (SQLException error) {
                    throw new SQLException(sql + ": " + error.getMessage(), error);
                }
            }
        }
        return new ArrayList<>(found);
    }

    private static void collect(ResultSet rows, int column, Set<String> found)
            throws SQLException {
        try (rows) {
            while (rows.next()) {
                found.add(rows.getString(column));
            }
        }
    }

    private Object views() throws SQLException {
        Map<String, Object> found = new LinkedHashMap<>();
        try (Connection connection = reader()) {
            for (Map.Entry<String, Object> view : asMap(task.get("views")).entrySet()) {
                try (Statement statement = connection.createStatement();
                        ResultSet rows = statement.executeQuery(view.getValue().toString())) {
                    found.put(view.getKey(), readAll(rows));
                } catch (Exception error) {
                    throw new SQLException(view.getKey() + ": " + error, error);
                }
            }
        }
        return found;
    }

    /** Reads every value as an object and as text, and returns the number of rows. */
    private static int readAll(ResultSet rows) throws SQLException {
        int count = 0;
        int columns = rows.getMetaData().getColumnCount();
        while (rows.next()) {
            for (int column = 1; column <= columns; column++) {
                rows.getMetaData().getColumnTypeName(column);
                rows.getObject(column);
                rows.getString(column);
            }
            count++;
        }
        return count;
    }

    private Object types() throws SQLException {
        try (Connection connection = reader();
                Statement statement = connection.createStatement()) {
            Map<String, Object> found = new LinkedHashMap<>();
            try (ResultSet rows = statement.executeQuery(text("types"))) {
                rows.next();
                found.put("compared", texts(rows));
            }
            try (ResultSet rows = statement.executeQuery(text("further_types"))) {
                found.put("further", rows.getMetaData().getColumnCount());
                readAll(rows);
            }
            return found;
        }
    }

    private static List<String> texts(ResultSet rows) throws SQLException {
        List<String> found = new ArrayList<>();
        for (int column = 1; column <= rows.getMetaData().getColumnCount(); column++) {
            found.add(rows.getString(column));
        }
        return found;
    }

    private Object clientParameters() throws SQLException {
        try (Connection connection = reader();
                PreparedStatement statement = connection.prepareStatement("SELECT ?, ?")) {
            statement.setLong(1, ((Number) task.get("number")).longValue());
            statement.setString(2, text("text"));
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return texts(rows);
            }
        }
    }

    /** V2 has parameters of the server in the settings of a statement, which are `param_…`. */
    private Object serverParameters() throws SQLException {
        return withParameters(Map.of(
                "clickhouse_setting_param_n", text("number"),
                "clickhouse_setting_param_t", escaped(text("text"))));
    }

    private Object serverParametersV1() throws SQLException {
        String escaped = escaped(text("text")).replace("\\", "\\\\").replace(",", "\\,");
        String given = "param_n=" + text("number") + ",param_t=" + escaped;
        return withParameters(Map.of("custom_http_params", given));
    }

    private Object withParameters(Map<String, String> options) throws SQLException {
        try (Connection connection = open(text("user"), text("password"), options);
                Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery("SELECT {n:UInt64}, {t:String}")) {
            rows.next();
            return texts(rows);
        }
    }

    private static String escaped(String text) {
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t");
    }

    private Object limit() throws SQLException {
        try (Connection connection = reader();
                Statement statement = connection.createStatement()) {
            statement.setMaxRows(((Number) task.get("limit")).intValue());
            return readAll(statement.executeQuery("SELECT number FROM numbers(1000000)"));
        }
    }

    private Object timeout() throws SQLException {
        try (Connection connection = reader();
                Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            try {
                readAll(statement.executeQuery(
                        text("long") + " SETTINGS max_execution_time = 1"));
            } catch (SQLException error) {
                return error + causes(error);
            }
        }
        throw new IllegalStateException("it was not refused");
    }

    private Object cancel() throws Exception {
        try (Connection connection = reader();
                Statement statement = connection.createStatement()) {
            CompletableFuture<String> refused = CompletableFuture.supplyAsync(
                    () -> cancelled(statement),
                    CompletableFuture.delayedExecutor(2, TimeUnit.SECONDS));
            try {
                readAll(statement.executeQuery(text("long")));
            } catch (SQLException error) {
                if (refused.get().isEmpty()) {
                    return error + causes(error);
                }
                throw new IllegalStateException(refused.get(), error);
            }
        }
        throw new IllegalStateException("it was not cancelled");
    }

    /** Cancels a statement and returns the error, or nothing. */
    private static String cancelled(Statement statement) {
        try {
            statement.cancel();
            return "";
        } catch (SQLException error) {
            return error + causes(error);
        }
    }

    private Object stream() throws SQLException {
        try (Connection connection = reader();
                Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery(text("stream"))) {
            long count = 0;
            long total = 0;
            while (rows.next()) {
                count++;
                total += rows.getLong(1);
            }
            return List.of(count, total);
        }
    }

    private Object refusal(String sql) throws SQLException {
        try (Connection connection = reader();
                Statement statement = connection.createStatement()) {
            try {
                statement.execute(sql);
            } catch (SQLException error) {
                return error.getMessage();
            }
        }
        throw new IllegalStateException("it was not refused");
    }

    private static Object single(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery(sql)) {
            rows.next();
            return rows.getInt(1);
        }
    }

    private String text(String key) {
        Object found = task.get(key);
        return found instanceof Number number ? String.valueOf(number.longValue()) : found.toString();
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> asMap(Object value) {
        return (Map<String, Object>) value;
    }

    /** JSON, as far as a task and its results need it. */
    private static final class Json {
        private final String text;
        private int at;

        Json(String text) {
            this.text = text;
        }

        Object value() throws IOException {
            char first = next();
            if (first == '{') {
                return object();
            }
            if (first == '[') {
                return list();
            }
            if (first == '"') {
                return string();
            }
            int begin = at - 1;
            while (at < text.length() && ",]} \n".indexOf(text.charAt(at)) < 0) {
                at++;
            }
            return Double.valueOf(text.substring(begin, at));
        }

        private Map<String, Object> object() throws IOException {
            Map<String, Object> found = new LinkedHashMap<>();
            for (char sign = next(); sign != '}'; sign = next()) {
                if (sign == ',') {
                    next();
                }
                String key = string();
                next();
                found.put(key, value());
            }
            return found;
        }

        private List<Object> list() throws IOException {
            List<Object> found = new ArrayList<>();
            for (char sign = next(); sign != ']'; sign = next()) {
                if (sign != ',') {
                    at--;
                }
                found.add(value());
            }
            return found;
        }

        private String string() {
            StringBuilder found = new StringBuilder();
            for (char sign = text.charAt(at++); sign != '"'; sign = text.charAt(at++)) {
                if (sign != '\\') {
                    found.append(sign);
                    continue;
                }
                char kind = text.charAt(at++);
                if (kind == 'u') {
                    found.append((char) Integer.parseInt(text.substring(at, at + 4), 16));
                    at += 4;
                } else {
                    int place = "nrt".indexOf(kind);
                    found.append(place < 0 ? kind : "\n\r\t".charAt(place));
                }
            }
            return found.toString();
        }

        private char next() {
            while (Character.isWhitespace(text.charAt(at))) {
                at++;
            }
            return text.charAt(at++);
        }

        static String text(Object value) {
            if (value instanceof Map<?, ?> map) {
                List<String> parts = new ArrayList<>();
                map.forEach((key, one) -> parts.add(text(key.toString()) + ":" + text(one)));
                return "{" + String.join(",", parts) + "}";
            }
            if (value instanceof List<?> list) {
                List<String> parts = new ArrayList<>();
                list.forEach(one -> parts.add(text(one)));
                return "[" + String.join(",", parts) + "]";
            }
            if (value == null || value instanceof Number || value instanceof Boolean) {
                return String.valueOf(value);
            }
            StringBuilder found = new StringBuilder("\"");
            for (char sign : value.toString().toCharArray()) {
                if (sign == '"' || sign == '\\') {
                    found.append('\\').append(sign);
                } else if (sign < ' ' || sign > '~') {
                    found.append(String.format("\\u%04x", (int) sign));
                } else {
                    found.append(sign);
                }
            }
            return found.append('"').toString();
        }
    }
}
