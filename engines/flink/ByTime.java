package tidegauge.flink;

import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.functions.RuntimeContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.LongSerializer;

/**
 * State of a key by time, milliseconds. It is kept by mixed times: those of whole seconds differ in few of
 * the bits by which a table of hashes is divided, so that twenty of them share four of its places.
 */
final class ByTime<T> {
    private static final long FACTOR = 0x9e3779b97f4a7c15L;
    private static final long INVERSE = 0xf1de83e19937733dL;  // FACTOR * INVERSE = 1, modulo 2 ** 64
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

    /** A copy of all. */
    Map<Long, T> all() throws Exception {
        var all = new HashMap<Long, T>();
        for (var entry : state.entries()) all.put(entry.getKey() * INVERSE, entry.getValue());
        return all;
    }

    /** Remove what is of a time up to this one. */
    void removeUntil(long lastMs) throws Exception {
        for (var mixed = state.keys().iterator(); mixed.hasNext();) {
            if (mixed.next() * INVERSE <= lastMs) mixed.remove();
        }
    }
}
