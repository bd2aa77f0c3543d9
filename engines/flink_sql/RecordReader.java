package tidegauge.flink;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.util.Collector;

/** Decodes a value to a row. A value that does not decode gives no row and is reported. */
final class RecordReader implements DeserializationSchema<RowData> {
    private static final long serialVersionUID = 1L;

    /** Prefix of the lines that engine.py forwards. */
    private static final String TOLD = "tidegauge: ";
    /** Maximum number of bytes reported of an undecodable value. */
    private static final int VALUE_BYTES = 100_000;

    private final String topic;
    private final String schema;
    private final boolean isJson;
    private final String[] columns;
    private final TypeInformation<RowData> type;
    private transient Layout layout;
    private transient BinaryDecoder decoder;
    private transient ObjectMapper json;

    RecordReader(
            String topic,
            String schema,
            boolean isJson,
            List<String> columns,
            TypeInformation<RowData> type) {
        this.topic = topic;
        this.schema = schema;
        this.isJson = isJson;
        this.columns = columns.toArray(new String[0]);
        this.type = type;
    }

    @Override
    public void open(InitializationContext context) {
        layout = new Layout(schema, Arrays.asList(columns));
        json = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);
    }

    @Override
    public void deserialize(byte[] value, Collector<RowData> out) {
        RowData row = deserialize(value);
        if (row == null) {
            tell(value);
        } else {
            out.collect(row);
        }
    }

    /** Partition and offset are missing because Flink does not provide them here. */
    private void tell(byte[] value) {
        ObjectNode line = json.createObjectNode().put("event", "undecodable").put("topic", topic);
        if (value != null) {
            line.put("value", Arrays.copyOf(value, Math.min(value.length, VALUE_BYTES)));
            line.put("bytes", value.length);
        }
        System.out.println(TOLD + line);
    }

    @Override
    public RowData deserialize(byte[] value) {
        if (value == null) {
            return null;
        }
        try {
            return isJson ? fromJson(value) : fromAvro(value);
        } catch (IOException | AvroRuntimeException | IllegalArgumentException error) {
            return null;
        }
    }

    private RowData fromAvro(byte[] value) throws IOException {
        int from = Layout.HEADER_BYTES;
        if (value.length < from || !Arrays.equals(value, 0, from, layout.header, 0, from)) {
            return null;
        }
        decoder = DecoderFactory.get().binaryDecoder(value, from, value.length - from, decoder);
        GenericRowData row = new GenericRowData(columns.length);
        for (int at = 0; at < layout.types.length; at++) {
            Object read = isNull(at) ? null : readAvro(at, value.length);
            if (layout.column[at] >= 0) {
                row.setField(layout.column[at], read);
            }
        }
        return decoder.isEnd() ? row : null;
    }

    private boolean isNull(int at) throws IOException {
        if (layout.nullBranch[at] < 0) {
            return false;
        }
        int branch = decoder.readIndex();
        check(branch == 0 || branch == 1);
        return branch == layout.nullBranch[at];
    }

    private Object readAvro(int at, int limit) throws IOException {
        switch (layout.types[at]) {
            case STRING:
                long size = decoder.readLong();
                check(size >= 0 && size <= limit);
                byte[] text = new byte[(int) size];
                decoder.readFixed(text);
                return string(text);
            case INT:
                // readInt would not detect overflow.
                long value = decoder.readLong();
                check(value == (int) value);
                return (int) value;
            case LONG:
                return decoder.readLong();
            case FLOAT:
                return decoder.readFloat();
            case DOUBLE:
                return decoder.readDouble();
            case BOOLEAN:
                return decoder.readBoolean();
            default:
                throw new IllegalArgumentException("unsupported Avro type: " + layout.types[at]);
        }
    }

    /** Text must be UTF-8; ASCII, the common case, needs no further check. */
    private static StringData string(byte[] bytes) throws IOException {
        for (byte one : bytes) {
            if (one < 0) {
                CharBuffer decoded = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes));
                return StringData.fromString(decoded.toString());
            }
        }
        return StringData.fromBytes(bytes);
    }

    private RowData fromJson(byte[] value) throws IOException {
        // Jackson itself accepts invalid UTF-8.
        String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(value)).toString();
        JsonNode record = json.readTree(text);
        if (record == null || !record.isObject()) {
            return null;
        }
        GenericRowData row = new GenericRowData(columns.length);
        for (int at = 0; at < layout.types.length; at++) {
            JsonNode member = record.get(layout.names[at]);
            boolean isNull = member == null || member.isNull();
            if (isNull && layout.nullBranch[at] < 0) {
                return null;
            }
            Object read = isNull ? null : readJson(at, member);
            if (layout.column[at] >= 0) {
                row.setField(layout.column[at], read);
            }
        }
        return row;
    }

    private Object readJson(int at, JsonNode member) throws IOException {
        switch (layout.types[at]) {
            case STRING:
                check(member.isTextual());
                StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(member.textValue()));
                return StringData.fromString(member.textValue());
            case INT:
                check(member.isIntegralNumber() && member.canConvertToInt());
                return member.intValue();
            case LONG:
                check(member.isIntegralNumber() && member.canConvertToLong());
                return member.longValue();
            case FLOAT:
                check(member.isNumber());
                return member.floatValue();
            case DOUBLE:
                check(member.isNumber());
                return member.doubleValue();
            case BOOLEAN:
                check(member.isBoolean());
                return member.booleanValue();
            default:
                throw new IllegalArgumentException("unsupported Avro type: " + layout.types[at]);
        }
    }

    private static void check(boolean holds) {
        if (!holds) {
            throw new IllegalArgumentException("the value does not match the schema");
        }
    }

    @Override
    public boolean isEndOfStream(RowData row) {
        return false;
    }

    @Override
    public TypeInformation<RowData> getProducedType() {
        return type;
    }
}
