package tidegauge.flink;

import java.util.Arrays;

/**
 * A record of an input, or a row that a stage derives from several. Immutable. source: the place of
 * the input in the plan, or DERIVED. values: in the order of its schema; null if the record does not
 * decode. key, value: the bytes of the record, present only until they are copied.
 */
public final class Event {
    static final int DERIVED = -1;

    final int source;
    final long eventMs;
    final long appendedMs;
    final long offset;
    final Object[] values;
    final byte[] key;
    final byte[] value;

    Event(int source, long eventMs, long appendedMs, long offset, Object[] values) {
        this(source, eventMs, appendedMs, offset, values, null, null);
    }

    Event(int source, long eventMs, long appendedMs, long offset, Object[] values, byte[] key,
            byte[] value) {
        this.source = source;
        this.eventMs = eventMs;
        this.appendedMs = appendedMs;
        this.offset = offset;
        this.values = values;
        this.key = key;
        this.value = value;
    }

    /** The same with other values and without the bytes of the record. */
    Event with(Object[] other) {
        return new Event(source, eventMs, appendedMs, offset, other);
    }

    @Override
    public String toString() {
        return source + "@" + eventMs + Arrays.toString(values);
    }
}
