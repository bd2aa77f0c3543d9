package tidegauge;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Map;

/**
 * A record of an input, or an output of stages over several records (its source is then empty). A
 * recomputed row has the same id. Integers are Long, and times are milliseconds.
 */
public final class Row extends Stored {
    private static final long serialVersionUID = 1;
    /** The source of a clock: everything appended up to its time has been read. */
    public static final String CLOCK = "#clock";

    final Columns columns;
    final Object[] values;
    public final String source;
    /** Null for a record of an input: its id is its place. */
    private final String id;
    private final int partition;
    public final long eventMs;
    public final long appendedMs;
    public final long offset;
    /** In a state: the output of a group; its id is that of the row that completed it. */
    final boolean completes;

    private Row(Columns columns, Object[] values, String source, String id, int partition,
            long eventMs, long appendedMs, long offset, boolean completes) {
        this.columns = columns;
        this.values = values;
        this.source = source;
        this.id = id;
        this.partition = partition;
        this.eventMs = eventMs;
        this.appendedMs = appendedMs;
        this.offset = offset;
        this.completes = completes;
    }

    /** A row with an id of its own. */
    Row(Map<String, Object> fields, String source, String id, long eventMs, long appendedMs) {
        this(Columns.of(fields.keySet()), fields.values().toArray(), source, id, -1, eventMs,
            appendedMs, 0, false);
    }

    /** The record at a place of an input. */
    static Row of(Columns columns, Object[] values, String input, int partition, long offset,
            long eventMs, long appendedMs) {
        return new Row(
            columns, values, input, null, partition, eventMs, appendedMs, offset, false);
    }

    /** A clock of a task: everything appended up to a time has been read. */
    public static Row clock(int task, long appendedMs) {
        return new Row(Map.of(), CLOCK, String.valueOf(task), 0, appendedMs);
    }

    public boolean isClock() {
        return CLOCK.equals(source);
    }

    public String id() {
        return id == null ? source + ":" + partition + ":" + offset : id;
    }

    /** The partition of a record of an input. */
    int partition() {
        return partition;
    }

    /** Whether a row is the same, computed again. */
    boolean isAgain(Row other) {
        if (id != null || other.id != null) return id().equals(other.id());
        return offset == other.offset && partition == other.partition
            && source.equals(other.source);
    }

    @Override
    long appendedMs() {
        return appendedMs;
    }

    /** Whether it is a record of an input, or derived from one. */
    public boolean isOf(String input) {
        return source.isEmpty() || source.equals(input);
    }

    public Object get(String column) {
        var place = columns.place(column);
        return place < 0 ? null : values[place];
    }

    public String runId() {
        return (String) get("run_id");
    }

    public Row with(Map<String, Object> more) {
        var names = new ArrayList<>(columns.names);
        more.keySet().stream().filter(name -> columns.place(name) < 0).forEach(names::add);
        var all = Columns.of(names);
        var wide = new Object[names.size()];
        System.arraycopy(values, 0, wide, 0, values.length);
        more.forEach((name, value) -> wide[all.place(name)] = value);
        return with(all, wide);
    }

    /** The same with other columns. */
    Row with(Columns other, Object[] given) {
        return new Row(
            other, given, source, id, partition, eventMs, appendedMs, offset, completes);
    }

    /** In a state: the output of a group, and which row completed it. */
    Row completedBy(Row last) {
        return new Row(columns, values, source, last.id(), -1, eventMs,
            Math.max(appendedMs, last.appendedMs), offset, true);
    }

    /** That output. */
    Row output(String ofId) {
        return new Row(columns, values, source, ofId, -1, eventMs, appendedMs, offset, false);
    }

    @Override
    void write(DataOutput out) throws IOException {
        writeBytes(out, columns.header);
        writeText(out, source);
        out.writeInt(partition);
        if (partition < 0) writeText(out, id);
        out.writeLong(eventMs);
        out.writeLong(appendedMs);
        out.writeLong(offset);
        out.writeBoolean(completes);
        for (var value : values) writeValue(value, out);
    }

    static Row read(DataInput in) throws IOException {
        var columns = Columns.at(readBytes(in));
        var source = readText(in);
        var partition = in.readInt();
        var id = partition < 0 ? readText(in) : null;
        var eventMs = in.readLong();
        var appendedMs = in.readLong();
        var offset = in.readLong();
        var completes = in.readBoolean();
        var values = new Object[columns.names.size()];
        for (var i = 0; i < values.length; i++) values[i] = readValue(in);
        return new Row(
            columns, values, source, id, partition, eventMs, appendedMs, offset, completes);
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
}
