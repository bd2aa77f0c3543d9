package tidegauge;

import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;

/** Combines the clocks of several tasks: everything up to the minimum has been read. */
public final class Clocks {
    private final int tasks;
    private final Map<String, Long> read = new HashMap<>();

    public Clocks(int tasks) {
        this.tasks = tasks;
    }

    /** The combined time after a task's clock; empty until each of them has sent one. */
    public OptionalLong merged(Row clock) {
        read.merge(clock.id(), clock.appendedMs, Math::max);
        if (read.size() < tasks) return OptionalLong.empty();
        return read.values().stream().mapToLong(Long::longValue).min();
    }
}
