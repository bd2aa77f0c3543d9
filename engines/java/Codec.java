package tidegauge;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A record of primitive columns in Avro's single-object encoding: C3 01, the CRC-64-AVRO
 * fingerprint of its schema's parsing canonical form, and the datum (Avro specification). Times
 * stay integers.
 */
public final class Codec {
    private static final long EMPTY = 0xc15d213aa4d7a795L;
    private static final int HEADER_BYTES = 10;

    /** Avro's primitive types except bytes and null. */
    private enum Type {
        STRING, INT, LONG, DOUBLE, FLOAT, BOOLEAN;

        static Type of(String name) {
            for (var type : values()) {
                if (type.name().toLowerCase(Locale.ROOT).equals(name)) return type;
            }
            throw new IllegalArgumentException("unsupported Avro type: " + name);
        }
    }

    /** A column; null may be the first branch of its type. */
    private record Column(String name, Type type, boolean isNullable) {}

    private final List<Column> columns = new ArrayList<>();
    private final Columns own;
    private final Map<Columns, int[]> places = new ConcurrentHashMap<>();
    private final byte[] header;

    public Codec(String text) {
        JsonNode schema;
        try {
            schema = Plan.JSON.readTree(text);
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException("the schema is not valid JSON: " + text, error);
        }
        var fields = new ArrayList<String>();
        for (var field : schema.get("fields")) {
            var type = field.get("type");
            var plain = plain(type.isArray() ? type.get(1) : type);
            if (type.isArray() && !(type.size() == 2 && plain(type.get(0)).equals("null"))) {
                throw new IllegalArgumentException(
                    "unsupported union, which must be of null and one type: " + type);
            }
            var name = field.get("name").asText();
            columns.add(new Column(name, Type.of(plain), type.isArray()));
            var written = type.isArray() ? "[\"null\",\"" + plain + "\"]" : "\"" + plain + "\"";
            fields.add("{\"name\":\"" + name + "\",\"type\":" + written + "}");
        }
        var space = schema.path("namespace").asText("");
        var name = (space.isEmpty() ? "" : space + ".") + schema.get("name").asText();
        var canonical = "{\"name\":\"" + name + "\",\"type\":\"record\",\"fields\":["
            + String.join(",", fields) + "]}";
        header = ByteBuffer.allocate(HEADER_BYTES).order(ByteOrder.LITTLE_ENDIAN)
            .put((byte) 0xc3).put((byte) 0x01)
            .putLong(fingerprint(canonical.getBytes(StandardCharsets.UTF_8))).array();
        own = Columns.of(names());
    }

    private static String plain(JsonNode type) {
        return type.isObject() ? type.get("type").asText() : type.asText();
    }

    static long fingerprint(byte[] data) {
        var crc = EMPTY;
        for (var one : data) {
            var low = (crc ^ one) & 0xff;
            for (var bit = 0; bit < 8; bit++) low = (low >>> 1) ^ (EMPTY & -(low & 1L));
            crc = (crc >>> 8) ^ low;
        }
        return crc;
    }

    /** The names of the columns, in order. */
    public List<String> names() {
        return columns.stream().map(Column::name).toList();
    }

    Columns columns() {
        return own;
    }

    /** The values of the columns in their order, or null if it does not decode. */
    public Object[] decodeValues(byte[] value) {
        if (value == null || value.length < HEADER_BYTES) return null;
        if (!Arrays.equals(value, 0, HEADER_BYTES, header, 0, HEADER_BYTES)) return null;
        try {
            var data = ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN).position(HEADER_BYTES);
            var values = new Object[columns.size()];
            for (var i = 0; i < values.length; i++) {
                var column = columns.get(i);
                var isNull = column.isNullable && zigzag(data) == 0;
                values[i] = isNull ? null : read(data, column.type);
            }
            return data.hasRemaining() ? null : values;
        } catch (RuntimeException error) {
            return null;
        }
    }

    private static Object read(ByteBuffer data, Type type) {
        return switch (type) {
            case STRING -> {
                var size = zigzag(data);
                if (size < 0 || size > data.remaining()) {
                    throw new IllegalArgumentException("a text has no such length: " + size);
                }
                var bytes = new byte[(int) size];
                data.get(bytes);
                yield text(bytes);
            }
            case INT -> (long) Math.toIntExact(zigzag(data));
            case LONG -> zigzag(data);
            case DOUBLE -> data.getDouble();
            case FLOAT -> (double) data.getFloat();
            case BOOLEAN -> data.get() != 0;
        };
    }

    private static String text(byte[] bytes) {
        var found = new String(bytes, StandardCharsets.UTF_8);
        if (found.indexOf('\uFFFD') >= 0
                && !Arrays.equals(found.getBytes(StandardCharsets.UTF_8), bytes)) {
            throw new IllegalArgumentException("a text is not valid UTF-8");
        }
        return found;
    }

    private static long zigzag(ByteBuffer data) {
        var found = 0L;
        for (var shift = 0; shift < 64; shift += 7) {
            var one = data.get();
            found |= (one & 0x7fL) << shift;
            if (one >= 0) return (found >>> 1) ^ -(found & 1);
        }
        throw new IllegalArgumentException("a variable-length integer is too long");
    }

    /** The same for a JSON value: every column has a value of its type. */
    public Object[] decodeJsonValues(byte[] value) {
        if (value == null) return null;
        try (var json = Plan.JSON.getFactory().createParser(value)) {
            if (json.nextToken() != JsonToken.START_OBJECT) return null;
            var values = new Object[columns.size()];
            while (json.nextToken() == JsonToken.FIELD_NAME) {
                var place = own.place(json.currentName());
                json.nextToken();
                if (place >= 0) values[place] = plainValue(json, columns.get(place).type);
                json.skipChildren();
            }
            if (json.currentToken() != JsonToken.END_OBJECT || json.nextToken() != null) return null;
            for (var one : values) if (one == null) return null;
            return values;
        } catch (IOException error) {
            return null;
        }
    }

    /** The value at which a parser is; null if it has another type. */
    private static Object plainValue(JsonParser json, Type type) throws IOException {
        var token = json.currentToken();
        var isWhole = token == JsonToken.VALUE_NUMBER_INT;
        return switch (type) {
            case STRING -> token == JsonToken.VALUE_STRING && isText(json.getText())
                ? json.getText() : null;
            case INT -> isWhole && json.getNumberType() == JsonParser.NumberType.INT
                ? (Object) json.getLongValue() : null;
            case LONG -> isWhole && json.getNumberType() != JsonParser.NumberType.BIG_INTEGER
                ? (Object) json.getLongValue() : null;
            case DOUBLE, FLOAT -> isWhole || token == JsonToken.VALUE_NUMBER_FLOAT
                ? (Object) json.getDoubleValue() : null;
            case BOOLEAN -> token.isBoolean() ? (Object) json.getBooleanValue() : null;
        };
    }

    /** Whether it has no half of a surrogate pair. */
    private static boolean isText(String text) {
        for (var i = 0; i < text.length(); i++) {
            if (!Character.isSurrogate(text.charAt(i))) continue;
            return StandardCharsets.UTF_8.newEncoder().canEncode(text);
        }
        return true;
    }

    /** Header and datum. A column missing in the row is null. */
    public byte[] encode(Row row) {
        var from = places.computeIfAbsent(
            row.columns, of -> own.names.stream().mapToInt(of::place).toArray());
        var values = new Object[from.length];
        for (var i = 0; i < values.length; i++) {
            values[i] = from[i] < 0 ? null : row.values[from[i]];
        }
        return encode(values);
    }

    /** The same of values in the order of the columns. */
    public byte[] encode(Object[] values) {
        var out = new Bytes(64 + 16 * values.length);
        out.write(header);
        for (var i = 0; i < values.length; i++) {
            var column = columns.get(i);
            var value = values[i];
            if (column.isNullable) out.writeZigzag(value == null ? 0 : 1);
            if (value != null) write(out, column.type, value);
            else if (!column.isNullable) {
                throw new IllegalArgumentException(
                    column.name + " is null, but its schema requires a value");
            }
        }
        return out.toArray();
    }

    private static void write(Bytes out, Type type, Object value) {
        switch (type) {
            case STRING -> {
                var bytes = value.toString().getBytes(StandardCharsets.UTF_8);
                out.writeZigzag(bytes.length);
                out.write(bytes);
            }
            case INT, LONG -> out.writeZigzag(((Number) value).longValue());
            case DOUBLE -> out.writeLow(
                Double.doubleToRawLongBits(((Number) value).doubleValue()), Double.BYTES);
            case FLOAT -> out.writeLow(
                Float.floatToRawIntBits(((Number) value).floatValue()), Float.BYTES);
            case BOOLEAN -> out.write((Boolean) value ? 1 : 0);
        }
    }
}
