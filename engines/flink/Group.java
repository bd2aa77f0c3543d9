package tidegauge.flink;

import java.io.IOException;
import java.util.Arrays;
import java.util.HashSet;
import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import tidegauge.Accumulator;
import tidegauge.Row;

/**
 * The state of a window: aggregated events. identities: what was counted once; null if all events
 * count. counts: events of each input. most: the largest announced number. head: the run and the
 * values of the keys, null until there is an event. touchedMs: when the newest event arrived, by the
 * clock of the machine.
 */
final class Group {
    Object[] head;
    final Accumulator[] accumulators;
    final long[] counts;
    final HashSet<String> identities;
    long most;
    long appendedMs = Long.MIN_VALUE;
    long touchedMs;
    boolean isPublished;

    Group(Object[] head, Accumulator[] accumulators, long[] counts, HashSet<String> identities) {
        this.head = head;
        this.accumulators = accumulators;
        this.counts = counts;
        this.identities = identities;
    }

    /** A window once published: only the mark is kept. */
    static final Group PUBLISHED = new Group(null, new Accumulator[0], new long[0], null);

    static {
        PUBLISHED.isPublished = true;
    }

    /** Serializes groups. */
    static final class OfGroup extends Format<Group> {
        private static final long serialVersionUID = 1;
        static final OfGroup INSTANCE = new OfGroup();

        @Override
        public Group copy(Group from) {
            var accumulators = Arrays.stream(from.accumulators).map(Accumulator::copy)
                .toArray(Accumulator[]::new);
            var copy = new Group(from.head, accumulators, from.counts.clone(),
                from.identities == null ? null : new HashSet<>(from.identities));
            copy.most = from.most;
            copy.appendedMs = from.appendedMs;
            copy.touchedMs = from.touchedMs;
            copy.isPublished = from.isPublished;
            return copy;
        }

        @Override
        public void serialize(Group group, DataOutputView out) throws IOException {
            writeValues(group.head, out);
            out.writeShort(group.accumulators.length);
            for (var one : group.accumulators) one.write(out);
            out.writeShort(group.counts.length);
            for (var count : group.counts) out.writeLong(count);
            out.writeInt(group.identities == null ? -1 : group.identities.size());
            if (group.identities != null) {
                for (var one : group.identities) Row.writeValue(one, out);
            }
            out.writeLong(group.most);
            out.writeLong(group.appendedMs);
            out.writeLong(group.touchedMs);
            out.writeBoolean(group.isPublished);
        }

        @Override
        public Group deserialize(DataInputView in) throws IOException {
            var head = readValues(in);
            var accumulators = new Accumulator[in.readShort()];
            for (var i = 0; i < accumulators.length; i++) accumulators[i] = Accumulator.read(in);
            var counts = new long[in.readShort()];
            for (var i = 0; i < counts.length; i++) counts[i] = in.readLong();
            var size = in.readInt();
            var identities = size < 0 ? null : new HashSet<String>();
            for (var i = 0; i < size; i++) identities.add((String) Row.readValue(in));
            var group = new Group(head, accumulators, counts, identities);
            group.most = in.readLong();
            group.appendedMs = in.readLong();
            group.touchedMs = in.readLong();
            group.isPublished = in.readBoolean();
            return group;
        }

        @Override
        public TypeSerializerSnapshot<Group> snapshotConfiguration() {
            return new Snapshot();
        }

        /** The version of the format, in checkpoints. */
        public static final class Snapshot extends SimpleTypeSerializerSnapshot<Group> {
            public Snapshot() {
                super(() -> INSTANCE);
            }
        }
    }
}
