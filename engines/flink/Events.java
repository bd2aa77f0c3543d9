package tidegauge.flink;

import java.io.IOException;
import java.util.Arrays;
import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;

/** Several events as one state; places may be empty. isPublished: their output was published. */
final class Events {
    static final Events PUBLISHED = new Events(0);

    static {
        PUBLISHED.isPublished = true;
    }

    Event[] all;
    boolean isPublished;

    Events(int count) {
        all = new Event[count];
    }

    void append(Event event) {
        all = Arrays.copyOf(all, all.length + 1);
        all[all.length - 1] = event;
    }

    /** Serializes them. */
    static final class OfEvents extends Format<Events> {
        private static final long serialVersionUID = 1;
        static final OfEvents INSTANCE = new OfEvents();

        @Override
        public Events copy(Events from) {
            var copy = new Events(0);
            copy.all = from.all.clone();
            copy.isPublished = from.isPublished;
            return copy;
        }

        @Override
        public void serialize(Events events, DataOutputView out) throws IOException {
            out.writeBoolean(events.isPublished);
            writeAll(events.all, EventFormat.INSTANCE, out);
        }

        @Override
        public Events deserialize(DataInputView in) throws IOException {
            var found = new Events(0);
            found.isPublished = in.readBoolean();
            found.all = new Event[in.readInt()];
            for (var i = 0; i < found.all.length; i++) {
                if (in.readBoolean()) found.all[i] = EventFormat.INSTANCE.deserialize(in);
            }
            return found;
        }

        @Override
        public TypeSerializerSnapshot<Events> snapshotConfiguration() {
            return new Snapshot();
        }

        /** The version of the format, in checkpoints. */
        public static final class Snapshot extends SimpleTypeSerializerSnapshot<Events> {
            public Snapshot() {
                super(() -> INSTANCE);
            }
        }
    }
}
