package tidegauge.flink;

import java.util.SortedMap;
import java.util.TreeMap;
import org.apache.flink.api.common.functions.RuntimeContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.LongSerializer;

/**
 * State of a key by time, milliseconds. The times are multiplied by FACTOR: whole seconds differ in
 * few of their low bits, so that twenty of them would share four buckets of a hash table.
 */
final class ByTime<T> {
    private static final long FACTOR = 0x9e3779b97f4a7c15L;
    private static final long INVERSE = 0xf1de83e19937733dL;  // of FACTOR, modulo 2^64
    private final MapState<Long, T> state;

    ByTime(RuntimeContext context, String name, TypeSerializer<T> format) {
        state = context.getMapState(
            new MapStateDescriptor<>(name, LongSerializer.INSTANCE, format));
    }

    /** Null if there is none. */
    T get(long timeMs) throws Exception {
        return state.get(timeMs * FACTOR);
    }

    void put(long timeMs, T value) throws Exception {
        state.put(timeMs * FACTOR, value);
    }

    void remove(long timeMs) throws Exception {
        state.remove(timeMs * FACTOR);
    }

    /** A copy of all entries, by ascending time. */
    SortedMap<Long, T> all() throws Exception {
        var all = new TreeMap<Long, T>();
        for (var entry : state.entries()) all.put(entry.getKey() * INVERSE, entry.getValue());
        return all;
    }

    /** Remove the entries of all times up to this one. */
    void removeUntil(long lastMs) throws Exception {
        for (var keys = state.keys().iterator(); keys.hasNext();) {
            if (keys.next() * INVERSE <= lastMs) keys.remove();
        }
    }
}
