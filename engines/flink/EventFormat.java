package tidegauge.flink;

import java.io.IOException;
import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;

/** Serializes events: by place, without the names of their columns. */
final class EventFormat extends Format<Event> {
    private static final long serialVersionUID = 1;
    static final EventFormat INSTANCE = new EventFormat();

    @Override
    public boolean isImmutableType() {
        return true;
    }

    @Override
    public Event copy(Event from) {
        return from;
    }

    @Override
    public void serialize(Event event, DataOutputView out) throws IOException {
        out.writeByte(event.source);
        out.writeLong(event.eventMs);
        out.writeLong(event.appendedMs);
        out.writeLong(event.offset);
        writeValues(event.values, out);
        writeBytes(event.key, out);
        writeBytes(event.value, out);
    }

    @Override
    public Event deserialize(DataInputView in) throws IOException {
        return new Event(in.readByte(), in.readLong(), in.readLong(), in.readLong(),
            readValues(in), readBytes(in), readBytes(in));
    }

    private static void writeBytes(byte[] bytes, DataOutputView out) throws IOException {
        out.writeBoolean(bytes != null);
        if (bytes == null) return;
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    private static byte[] readBytes(DataInputView in) throws IOException {
        if (!in.readBoolean()) return null;
        var bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return bytes;
    }

    @Override
    public TypeSerializerSnapshot<Event> snapshotConfiguration() {
        return new Snapshot();
    }

    /** The version of the format, in checkpoints. */
    public static final class Snapshot extends SimpleTypeSerializerSnapshot<Event> {
        public Snapshot() {
            super(() -> INSTANCE);
        }
    }
}
