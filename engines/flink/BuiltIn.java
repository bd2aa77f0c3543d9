package tidegauge.flink;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.FlatJoinFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import tidegauge.Stage;

/**
 * Stages by the operators that Flink has for them: an interval join, and windows with the default
 * trigger, which publishes one when the watermark passes its end. Later events are dropped.
 */
final class BuiltIn {
    private BuiltIn() {}

    /** The stage over the events of each input, keyed, or over those of another stage. */
    static DataStream<Event> stage(
            Stage stage, Rows rows, List<KeyedStream<Event, String>> streams) {
        if (stage.kind.equals("join") || stage.kind.equals("window_join")) {
            if (streams.size() != 2) {
                throw new IllegalStateException(
                    stage.name + " joins " + streams.size() + " inputs; Flink's joins have two");
            }
            return stage.kind.equals("join")
                ? streams.get(0).intervalJoin(streams.get(1))
                    .between(Duration.ZERO, Duration.ZERO).process(new Join(rows), Type.EVENT)
                : streams.get(0).join(streams.get(1))
                    .where(streams.get(0).getKeySelector()).equalTo(streams.get(1).getKeySelector())
                    .window(windows(stage)).apply(new WindowJoin(rows), Type.EVENT)
                    .process(new InWindow(rows));
        }
        if (streams.size() != 1) throw new IllegalStateException(stage.name + " reads one stream");
        var windows = streams.get(0).window(windows(stage));
        return stage.kind.equals("change")
            ? windows.process(new Change(rows), Type.EVENT)
            : windows.aggregate(
                new Sum(rows), new Window(rows), Type.GROUP, Type.GROUP, Type.EVENT);
    }

    /** A tumbling window slides by its length. */
    private static SlidingEventTimeWindows windows(Stage stage) {
        return SlidingEventTimeWindows.of(
            Duration.ofMillis(stage.sizeMs), Duration.ofMillis(stage.slideMs));
    }

    /** Each pair of records of two inputs with the same keys and event time. */
    private static final class Join extends ProcessJoinFunction<Event, Event, Event> {
        private static final long serialVersionUID = 1;
        private final Rows rows;

        Join(Rows rows) {
            this.rows = rows;
        }

        @Override
        public void open(OpenContext context) {
            rows.open();
            Progress.opened();
        }

        @Override
        public void processElement(Event one, Event other, Context context, Collector<Event> out) {
            out.collect(rows.joined(one, other));
        }
    }

    /**
     * Each pair of records of two inputs with the same keys in one window, once it is closed. In which
     * one is not told here.
     */
    private static final class WindowJoin implements FlatJoinFunction<Event, Event, Event> {
        private static final long serialVersionUID = 1;
        private final Rows rows;

        WindowJoin(Rows rows) {
            this.rows = rows;
        }

        @Override
        public void join(Event one, Event other, Collector<Event> out) {
            out.collect(rows.open().pair(one, other, 0));
        }
    }

    /** The pairs with their windows: the operator stamps what it publishes with the last millisecond. */
    private static final class InWindow extends ProcessFunction<Event, Event> {
        private static final long serialVersionUID = 1;
        private final Rows rows;

        InWindow(Rows rows) {
            this.rows = rows;
        }

        @Override
        public void open(OpenContext context) {
            rows.open();
            Progress.opened();
        }

        @Override
        public void processElement(Event pair, Context context, Collector<Event> out) {
            out.collect(rows.inWindow(pair, context.timestamp() + 1 - rows.stage.sizeMs));
        }
    }

    /** The events of a window, aggregated as they arrive. */
    private static final class Sum implements AggregateFunction<Event, Group, Group> {
        private static final long serialVersionUID = 1;
        private final Rows rows;

        Sum(Rows rows) {
            this.rows = rows;
        }

        @Override
        public Group createAccumulator() {
            return rows.open().empty();
        }

        @Override
        public Group add(Event event, Group group) {
            rows.open().add(group, event);
            return group;
        }

        @Override
        public Group getResult(Group group) {
            return group;
        }

        @Override
        public Group merge(Group one, Group other) {
            throw new UnsupportedOperationException("these windows are not merged");
        }
    }

    /** The row of a window. */
    private static final class Window
            extends ProcessWindowFunction<Group, Event, String, TimeWindow> {
        private static final long serialVersionUID = 1;
        private final Rows rows;

        Window(Rows rows) {
            this.rows = rows;
        }

        @Override
        public void open(OpenContext context) {
            rows.open();
            Progress.opened();
        }

        @Override
        public void process(
                String key, Context context, Iterable<Group> groups, Collector<Event> out) {
            for (var group : groups) {
                var row = rows.window(group, context.window().getStart());
                if (row != null) out.collect(row);
            }
        }
    }

    /** The newest part of a window against earlier ones. */
    private static final class Change
            extends ProcessWindowFunction<Event, Event, String, TimeWindow> {
        private static final long serialVersionUID = 1;
        private final Rows rows;
        private transient Schema.Column windowStart;

        Change(Rows rows) {
            this.rows = rows;
        }

        @Override
        public void open(OpenContext context) {
            rows.open();
            windowStart = rows.schema.column("window_start");
            Progress.opened();
        }

        @Override
        public void process(
                String key, Context context, Iterable<Event> events, Collector<Event> out)
                throws Exception {
            var parts = new HashMap<Long, Event>();
            for (var event : events) parts.put((Long) windowStart.of(event), event);
            var last = context.window().getEnd() - rows.stage.slideMs;
            var newest = parts.get(last);
            if (newest != null) {
                out.collect(rows.change(newest, last, newest.appendedMs, parts::get));
            }
        }
    }
}
