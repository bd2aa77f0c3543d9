package tidegauge;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * A record of primitive columns in Avro's single-object encoding: C3 01, the CRC-64-AVRO
 * fingerprint of its schema's parsing canonical form, and the datum (Avro specification). Times
 * stay integers.
 */
public final class Codec {
    private static final long EMPTY = 0xc15d213aa4d7a795L;
    private static final int HEADER_BYTES = 10;
    private static final ObjectReader WHOLE =
        Plan.JSON.reader().with(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

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

    /** The columns of a value, or null if it does not decode. */
    public Map<String, Object> decode(byte[] value) {
        return named(decodeValues(value));
    }

    /** The same as values in the order of the columns. */
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

    private Map<String, Object> named(Object[] values) {
        if (values == null) return null;
        var fields = new HashMap<String, Object>(2 * values.length);
        for (var i = 0; i < values.length; i++) fields.put(columns.get(i).name, values[i]);
        return fields;
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
    public Map<String, Object> decodeJson(byte[] value) {
        return named(decodeJsonValues(value));
    }

    /** The same as values in the order of the columns. */
    public Object[] decodeJsonValues(byte[] value) {
        try {
            var json = value == null ? null : WHOLE.readTree(value);
            if (json == null || !json.isObject()) return null;
            var values = new Object[columns.size()];
            for (var i = 0; i < values.length; i++) {
                var column = columns.get(i);
                values[i] = plainValue(json.path(column.name), column.type);
                if (values[i] == null) return null;
            }
            return values;
        } catch (IOException error) {
            return null;
        }
    }

    private static Object plainValue(JsonNode given, Type type) {
        return switch (type) {
            case STRING -> given.isTextual() && isText(given.asText()) ? given.asText() : null;
            case INT -> given.canConvertToInt() && given.isIntegralNumber()
                ? (Object) given.asLong() : null;
            case LONG -> given.canConvertToLong() && given.isIntegralNumber()
                ? (Object) given.asLong() : null;
            case DOUBLE, FLOAT -> given.isNumber() ? (Object) given.asDouble() : null;
            case BOOLEAN -> given.isBoolean() ? (Object) given.asBoolean() : null;
        };
    }

    /** Whether it has no half of a surrogate pair. */
    private static boolean isText(String text) {
        return StandardCharsets.UTF_8.newEncoder().canEncode(text);
    }

    /** Header and datum. A column missing in the row is null. */
    public byte[] encode(Row row) {
        var values = new Object[columns.size()];
        for (var i = 0; i < values.length; i++) values[i] = row.get(columns.get(i).name);
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

    /** Bytes that grow; for one thread, unlike ByteArrayOutputStream. */
    private static final class Bytes {
        private byte[] data;
        private int size;

        Bytes(int capacity) {
            data = new byte[capacity];
        }

        private void reserve(int more) {
            if (size + more > data.length) {
                data = Arrays.copyOf(data, Math.max(2 * data.length, size + more));
            }
        }

        void write(int one) {
            reserve(1);
            data[size++] = (byte) one;
        }

        void write(byte[] bytes) {
            reserve(bytes.length);
            System.arraycopy(bytes, 0, data, size, bytes.length);
            size += bytes.length;
        }

        /** The lowest bytes of a number, lowest first. */
        void writeLow(long bits, int count) {
            for (var i = 0; i < count; i++) write((int) (bits >>> (8 * i)));
        }

        void writeZigzag(long value) {
            var left = (value << 1) ^ (value >> 63);
            for (; (left & ~0x7fL) != 0; left >>>= 7) write((int) (left & 0x7f | 0x80));
            write((int) left);
        }

        byte[] toArray() {
            return Arrays.copyOf(data, size);
        }
    }
}
