package tidegauge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** The plan of a program (docs/write-an-engine.md), read once per file and process. */
public final class Plan {
    public static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Plan> READ = new ConcurrentHashMap<>();
    private static final Map<String, String> LOGIN_MODULES = Map.of(
        "PLAIN", "plain.Plain", "SCRAM-SHA-256", "scram.Scram", "SCRAM-SHA-512", "scram.Scram");

    /** An input topic and how its records are decoded. */
    public record Input(String name, String topic, Codec record, String key, String eventTime) {}

    public final String path;
    public final JsonNode json;
    public final JsonNode settings;
    public final boolean isJson;
    private final FaultyRecord fault;
    public final Map<String, Codec> records = new HashMap<>();
    public final Map<String, Input> inputs = new LinkedHashMap<>();
    private final Map<String, Input> byTopic = new HashMap<>();
    /** Topic by published stage. */
    public final Map<String, String> outputs = new LinkedHashMap<>();
    /** The published stages and those they depend on, in order. */
    public final Map<String, Stage> stages = new LinkedHashMap<>();
    private final boolean usesEventTime;

    private Plan(String path) throws IOException {
        this.path = path;
        json = JSON.readTree(new File(path));
        settings = json.get("pipeline");
        isJson = "json".equals(text("wire_format"));
        fault = FaultyRecord.of(json.path("raise_file").asText());
        var domain = json.get("domain");
        domain.get("schemas").fields().forEachRemaining(
            one -> records.put(one.getKey(), new Codec(one.getValue().asText())));
        for (var one : domain.get("inputs")) {
            var record = records.get(one.get("record").asText());
            var name = one.get("name").asText();
            inputs.put(name, new Input(name, one.get("topic").asText(), record,
                one.get("key").asText(), one.get("event_time").asText()));
        }
        inputs.values().forEach(one -> byTopic.put(one.topic(), one));
        json.get("outputs").fields().forEachRemaining(
            one -> outputs.put(one.getKey(), one.getValue().asText()));
        var all = new LinkedHashMap<String, Stage>();
        for (var one : domain.get("stages")) {
            var stage = new Stage(one, this, all);
            all.put(stage.name, stage);
        }
        var needed = new LinkedHashSet<String>();
        outputs.keySet().forEach(name -> chain(name, all, needed));
        all.forEach((name, stage) -> {
            if (needed.contains(name)) stages.put(name, stage);
        });
        usesEventTime = stages.values().stream().anyMatch(Stage::usesEventTime);
    }

    private static void chain(String name, Map<String, Stage> all, Set<String> found) {
        if (!all.containsKey(name)) return;
        all.get(name).reads.forEach(before -> chain(before, all, found));
        found.add(name);
    }

    /** The plan of a file. */
    public static Plan of(String path) {
        return READ.computeIfAbsent(path, one -> {
            try {
                return new Plan(one);
            } catch (IOException error) {
                throw new IllegalArgumentException("the plan " + one + " could not be read", error);
            }
        });
    }

    public String text(String name) {
        return json.get(name).asText();
    }

    public int number(String setting) {
        return settings.get(setting).asInt();
    }

    public String choice(String setting) {
        return settings.get(setting).asText();
    }

    /** Prefix of consumer groups, transactions and internal topics. */
    public String group() {
        return text("group");
    }

    /** The topics that the published stages depend on. */
    public List<String> topics() {
        var names = new LinkedHashSet<String>();
        stages.values().forEach(stage -> stage.reads.forEach(read -> {
            if (inputs.containsKey(read)) names.add(inputs.get(read).topic());
        }));
        return new ArrayList<>(names);
    }

    /** Start offset of each partition, by topic. */
    public Map<String, long[]> startOffsets() {
        var found = new LinkedHashMap<String, long[]>();
        for (var topic : topics()) {
            var offsets = json.get("start_offsets").get(topic);
            var numbers = new long[offsets.size()];
            for (var i = 0; i < numbers.length; i++) numbers[i] = offsets.get(i).asLong();
            found.put(topic, numbers);
        }
        return found;
    }

    /** The topics that are read and have this partition. */
    public List<String> topicsWith(int partition) {
        return startOffsets().entrySet().stream().filter(one -> one.getValue().length > partition)
            .map(Map.Entry::getKey).toList();
    }

    /** The largest number of partitions of a topic. */
    public int partitions() {
        return startOffsets().values().stream().mapToInt(one -> one.length).max().orElse(1);
    }

    public Input inputOf(String topic) {
        return byTopic.get(topic);
    }

    /** Whether a stage has windows that wait for event time. */
    public boolean hasClosed() {
        return stages.values().stream().anyMatch(Stage::isClosed);
    }

    /** Whether `Closings` must see the records of the inputs. */
    public boolean usesEventTime() {
        return usesEventTime;
    }

    /**
     * The row of a Kafka record, which advances event time; null, after reporting it, if it does not
     * decode.
     */
    public Row row(String topic, int partition, long offset, long appendedMs, byte[] value) {
        throwIfDue();
        var row = decoded(topic, partition, offset, appendedMs, value);
        if (row == null) Lines.undecodable(topic, partition, offset, value);
        else if (usesEventTime) Closings.ofProcess().seen(row);
        return row;
    }

    /** Throw at this record if a run asked for it. */
    public void throwIfDue() {
        if (fault != null) fault.throwIfDue();
    }

    /** The same without reporting. */
    Row decoded(String topic, int partition, long offset, long appendedMs, byte[] value) {
        var input = inputOf(topic);
        var record = input.record();
        var values = isJson ? record.decodeJsonValues(value) : record.decodeValues(value);
        if (values == null) return null;
        var eventMs = ((Number) values[record.columns().place(input.eventTime())]).longValue();
        return Row.of(
            record.columns(), values, input.name(), partition, offset, eventMs, appendedMs);
    }

    /**
     * Properties of Kafka's Java clients, with the security settings that the plan has for
     * librdkafka. Throws IllegalArgumentException for settings that the Java client does not
     * support.
     */
    public Properties kafka() {
        var found = new Properties();
        found.put("bootstrap.servers", text("bootstrap"));
        var given = new HashMap<String, String>();
        json.get("properties").fields().forEachRemaining(
            one -> given.put(one.getKey(), one.getValue().asText()));
        if (given.containsKey("ssl.certificate.location")) {
            throw refused("this engine does not support client certificates for Kafka");
        }
        if (given.containsKey("security.protocol")) {
            found.put(
                "security.protocol", given.get("security.protocol").toUpperCase(Locale.ROOT));
        }
        var mechanism = given
            .getOrDefault("sasl.mechanism", given.getOrDefault("sasl.mechanisms", ""))
            .toUpperCase(Locale.ROOT);
        if (!mechanism.isEmpty()) {
            var module = LOGIN_MODULES.get(mechanism);
            if (module == null) {
                throw refused("this engine does not support the SASL mechanism " + mechanism);
            }
            found.put("sasl.mechanism", mechanism);
            found.put("sasl.jaas.config", String.format(
                "org.apache.kafka.common.security.%sLoginModule required username=%s password=%s;",
                module, quoted(given.getOrDefault("sasl.username", "")),
                quoted(given.getOrDefault("sasl.password", ""))));
        }
        if (given.containsKey("ssl.ca.location")) {
            found.put("ssl.truststore.type", "PEM");
            found.put("ssl.truststore.location", given.get("ssl.ca.location"));
        }
        return found;
    }

    /** The same for a producer, with the batches that the pipeline sets. */
    public Properties producer() {
        var found = kafka();
        found.put("linger.ms", String.valueOf(number("linger_ms")));
        found.put("batch.size", String.valueOf(1024 * number("batch_kb")));
        found.put("compression.type", choice("compression"));
        return found;
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
    }

    private static IllegalArgumentException refused(String reason) {
        Lines.say(Map.of("event", "failed", "stage", "", "reason", reason));
        return new IllegalArgumentException(reason);
    }
}
