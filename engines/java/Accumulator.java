package tidegauge;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;

/** An aggregate function over the values seen so far. */
public final class Accumulator {
    private static final List<String> FUNCTIONS =
        List.of("first", "sum", "mean", "min", "max", "count", "count_distinct");

    private final String function;
    private long count;
    private long whole;
    private double fraction;
    private boolean isFraction;
    private Object value;
    private long appendedMs;
    private long offset;
    private HashSet<Object> distinct;

    public Accumulator(String function) {
        this.function = function;
    }

    public Accumulator copy() {
        var copy = new Accumulator(function);
        copy.count = count;
        copy.whole = whole;
        copy.fraction = fraction;
        copy.isFraction = isFraction;
        copy.value = value;
        copy.appendedMs = appendedMs;
        copy.offset = offset;
        copy.distinct = distinct == null ? null : new HashSet<>(distinct);
        return copy;
    }

    /** One for each aggregate column of a stage. */
    static List<Accumulator> of(Stage stage) {
        return stage.aggregates.stream().map(each -> new Accumulator(each.function())).toList();
    }

    /** Add a row to those of a stage. */
    static void add(List<Accumulator> all, Stage stage, Row row) {
        for (var i = 0; i < all.size(); i++) {
            for (var of : stage.aggregates.get(i).of()) {
                var isRead = of.input().isEmpty() || row.isOf(of.input());
                var value = isRead ? row.get(of.column()) : null;
                if (value != null) all.get(i).add(value, row.appendedMs, row.offset);
            }
        }
    }

    /** The columns of a stage. */
    static Map<String, Object> results(List<Accumulator> all, Stage stage) {
        var columns = new HashMap<String, Object>();
        for (var i = 0; i < all.size(); i++) {
            columns.put(stage.aggregates.get(i).column(), all.get(i).result());
        }
        return columns;
    }

    /** Add a value, not null, of a record with this time of appending and this offset. */
    public void add(Object given, long ofAppendedMs, long ofOffset) {
        switch (function) {
            case "first" -> {
                var isFirst = count == 0 || ofAppendedMs < appendedMs
                    || ofAppendedMs == appendedMs && ofOffset < offset;
                if (!isFirst) break;
                value = given;
                appendedMs = ofAppendedMs;
                offset = ofOffset;
            }
            case "sum", "mean" -> {
                if (given instanceof Long number) whole += number;
                else {
                    isFraction = true;
                    fraction += ((Number) given).doubleValue();
                }
            }
            case "min" -> {
                if (count == 0 || Step.compare(given, value) < 0) value = given;
            }
            case "max" -> {
                if (count == 0 || Step.compare(given, value) > 0) value = given;
            }
            case "count" -> { }
            case "count_distinct" -> {
                if (distinct == null) distinct = new HashSet<>();
                distinct.add(given);
            }
            default -> throw new IllegalArgumentException(
                "unknown aggregate function: " + function);
        }
        count++;
    }

    /** Null without values. */
    public Object result() {
        if (count == 0) return null;
        return switch (function) {
            case "sum" -> isFraction ? (Object) (whole + fraction) : (Object) whole;
            case "mean" -> (isFraction ? whole + fraction : (double) whole) / count;
            case "count" -> count;
            case "count_distinct" -> (long) distinct.size();
            default -> value;
        };
    }

    public void write(DataOutput out) throws IOException {
        out.writeByte(FUNCTIONS.indexOf(function));
        out.writeLong(count);
        switch (function) {
            case "sum", "mean" -> {
                out.writeLong(whole);
                out.writeDouble(fraction);
                out.writeBoolean(isFraction);
            }
            case "count_distinct" -> {
                out.writeInt(distinct == null ? 0 : distinct.size());
                if (distinct != null) for (var one : distinct) Row.writeValue(one, out);
            }
            case "first" -> {
                Row.writeValue(value, out);
                out.writeLong(appendedMs);
                out.writeLong(offset);
            }
            default -> Row.writeValue(value, out);
        }
    }

    public static Accumulator read(DataInput in) throws IOException {
        var found = new Accumulator(FUNCTIONS.get(in.readByte()));
        found.count = in.readLong();
        switch (found.function) {
            case "sum", "mean" -> {
                found.whole = in.readLong();
                found.fraction = in.readDouble();
                found.isFraction = in.readBoolean();
            }
            case "count_distinct" -> {
                found.distinct = new HashSet<>();
                for (var left = in.readInt(); left > 0; left--) {
                    found.distinct.add(Row.readValue(in));
                }
            }
            case "first" -> {
                found.value = Row.readValue(in);
                found.appendedMs = in.readLong();
                found.offset = in.readLong();
            }
            default -> found.value = Row.readValue(in);
        }
        return found;
    }
}
