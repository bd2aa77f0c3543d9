package tidegauge;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** The value of a DSL aggregation: rows by key, and the output of its newest row. */
final class Group {
    static final Serde<Group> SERDE = Serdes.serdeFrom(
        (topic, group) -> group.toBytes(), (topic, bytes) -> bytes == null ? null : ofBytes(bytes));

    final State.Heap rows = new State.Heap();
    final List<Row> made = new ArrayList<>();

    private byte[] toBytes() {
        var bytes = new ByteArrayOutputStream();
        try (var out = new DataOutputStream(bytes)) {
            var entries = rows.all();
            out.writeInt(entries.size());
            for (var one : entries) {
                out.writeUTF(one.getKey());
                write(out, one.getValue());
            }
            out.writeInt(made.size());
            for (var row : made) write(out, row);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return bytes.toByteArray();
    }

    private static Group ofBytes(byte[] bytes) {
        var found = new Group();
        try (var in = new DataInputStream(new ByteArrayInputStream(bytes))) {
            for (var left = in.readInt(); left > 0; left--) {
                var key = in.readUTF();
                var prefix = State.prefixOf(key);
                found.rows.put(prefix, key.substring(prefix.length()), read(in));
            }
            for (var left = in.readInt(); left > 0; left--) found.made.add((Row) read(in));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return found;
    }

    private static void write(DataOutputStream out, Stored value) throws IOException {
        var bytes = value.toBytes();
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    private static Stored read(DataInputStream in) throws IOException {
        return Stored.ofBytes(in.readNBytes(in.readInt()));
    }
}
