package tidegauge;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInput;
import java.io.DataInputStream;
import java.io.DataOutput;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;

/**
 * A record of an input, or an output of stages over several records (its source is then empty). A
 * recomputed row has the same id. Integers are Long, and times are milliseconds.
 */
public final class Row implements Serializable {
    private static final long serialVersionUID = 1;
    /** The source of a clock: everything appended up to its time has been read. */
    public static final String CLOCK = "#clock";

    public final Map<String, Object> fields;
    public final String source;
    public final String id;
    public final long eventMs;
    public final long appendedMs;
    public final long offset;
    /** In a stored row: its group was complete with it. */
    public final boolean completes;

    public Row(Map<String, Object> fields, String source, String id, long eventMs,
            long appendedMs, long offset) {
        this(fields, source, id, eventMs, appendedMs, offset, false);
    }

    private Row(Map<String, Object> fields, String source, String id, long eventMs,
            long appendedMs, long offset, boolean completes) {
        this.fields = fields;
        this.source = source;
        this.id = id;
        this.eventMs = eventMs;
        this.appendedMs = appendedMs;
        this.offset = offset;
        this.completes = completes;
    }

    /** A clock of a task: everything appended up to a time has been read. */
    public static Row clock(int task, long appendedMs) {
        return new Row(new HashMap<>(), CLOCK, String.valueOf(task), 0, appendedMs, 0);
    }

    public boolean isClock() {
        return CLOCK.equals(source);
    }

    /** Whether it is a record of an input, or derived from one. */
    public boolean isOf(String input) {
        return source.isEmpty() || source.equals(input);
    }

    public Object get(String column) {
        return fields.get(column);
    }

    public String runId() {
        return (String) fields.get("run_id");
    }

    public Row with(Map<String, Object> more) {
        var all = new HashMap<>(fields);
        all.putAll(more);
        return new Row(all, source, id, eventMs, appendedMs, offset, completes);
    }

    /** The same with a subset of its columns. */
    public Row only(Set<String> columns, boolean isLast) {
        var some = new HashMap<String, Object>();
        for (var name : columns) {
            var value = fields.get(name);
            if (value != null) some.put(name, value);
        }
        return new Row(some, source, id, eventMs, appendedMs, offset, isLast);
    }

    /** Java serialization of a row. */
    private record Packed(byte[] bytes) implements Serializable {
        private Object readResolve() {
            return ofBytes(bytes);
        }
    }

    private Object writeReplace() {
        return new Packed(toBytes());
    }

    public byte[] toBytes() {
        var bytes = new ByteArrayOutputStream(256);
        try (var out = new DataOutputStream(bytes)) {
            writeText(out, source);
            writeText(out, id);
            out.writeLong(eventMs);
            out.writeLong(appendedMs);
            out.writeLong(offset);
            out.writeBoolean(completes);
            out.writeShort(fields.size());
            for (var one : fields.entrySet()) {
                writeText(out, one.getKey());
                writeValue(one.getValue(), out);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return bytes.toByteArray();
    }

    public static Row ofBytes(byte[] bytes) {
        try (var in = new DataInputStream(new ByteArrayInputStream(bytes))) {
            var source = readText(in);
            var id = readText(in);
            var eventMs = in.readLong();
            var appendedMs = in.readLong();
            var offset = in.readLong();
            var completes = in.readBoolean();
            var fields = new HashMap<String, Object>();
            for (var left = in.readShort(); left > 0; left--) {
                fields.put(readText(in), readValue(in));
            }
            return new Row(fields, source, id, eventMs, appendedMs, offset, completes);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Write a value of Avro's primitive types, or null. */
    public static void writeValue(Object value, DataOutput out) throws IOException {
        if (value == null) {
            out.writeByte('n');
        } else if (value instanceof Long whole) {
            out.writeByte('l');
            out.writeLong(whole);
        } else if (value instanceof Double number) {
            out.writeByte('d');
            out.writeDouble(number);
        } else if (value instanceof Boolean flag) {
            out.writeByte(flag ? 't' : 'f');
        } else {
            out.writeByte('s');
            writeText(out, value.toString());
        }
    }

    /** Read a value of `writeValue`. */
    public static Object readValue(DataInput in) throws IOException {
        return switch (in.readByte()) {
            case 'n' -> null;
            case 'l' -> in.readLong();
            case 'd' -> in.readDouble();
            case 't' -> true;
            case 'f' -> false;
            default -> readText(in);
        };
    }

    private static void writeText(DataOutput out, String text) throws IOException {
        var bytes = text.getBytes(StandardCharsets.UTF_8);
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    private static String readText(DataInput in) throws IOException {
        var bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
