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
    private static final String LAST = "\uffff";
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
    public Stored get(String prefix, String name) {
        var value = store.get(prefix + name);
        return value == null ? null : Stored.ofBytes(value);
    }

    @Override
    protected void write(String prefix, String name, Stored value) {
        store.put(prefix + name, value.toBytes());
    }

    @Override
    protected void remove(String prefix, String name) {
        store.delete(prefix + name);
    }

    @Override
    public List<Row> group(String prefix) {
        var rows = new ArrayList<Row>();
        range(prefix, prefix + LAST).forEach(one -> rows.add((Row) one.getValue()));
        return rows;
    }

    @Override
    public List<Map.Entry<String, Stored>> all() {
        return range("", LAST);
    }

    private List<Map.Entry<String, Stored>> range(String from, String to) {
        var found = new ArrayList<Map.Entry<String, Stored>>();
        try (var entries = store.range(from, to)) {
            entries.forEachRemaining(
                one -> found.add(Map.entry(one.key, Stored.ofBytes(one.value))));
        }
        return found;
    }

    @Override
    public long size() {
        return store.approximateNumEntries();
    }
}
