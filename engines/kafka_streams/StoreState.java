package tidegauge;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** The state of a stage in a store of Kafka Streams, with a changelog topic. */
final class StoreState extends State {
    private final KeyValueStore<String, byte[]> store;

    StoreState(KeyValueStore<String, byte[]> store) {
        this.store = store;
        restore();
    }

    static StoreBuilder<KeyValueStore<String, byte[]>> builder(String name, boolean isRocksDb) {
        var where = isRocksDb
            ? Stores.persistentKeyValueStore(name) : Stores.inMemoryKeyValueStore(name);
        return Stores.keyValueStoreBuilder(where, Serdes.String(), Serdes.ByteArray());
    }

    @Override
    public Row get(String key) {
        var found = store.get(key);
        return found == null ? null : Row.ofBytes(found);
    }

    @Override
    protected void write(String key, Row row) {
        store.put(key, row.toBytes());
    }

    @Override
    protected void remove(String key) {
        store.delete(key);
    }

    @Override
    public List<Map.Entry<String, Row>> range(String from, String to) {
        var found = new ArrayList<Map.Entry<String, Row>>();
        try (var entries = store.range(from, to)) {
            entries.forEachRemaining(
                one -> found.add(Map.entry(one.key, Row.ofBytes(one.value))));
        }
        return found;
    }

    @Override
    public long size() {
        return store.approximateNumEntries();
    }
}
