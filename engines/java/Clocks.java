package tidegauge;

import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;

/** Up to when everything has been read, where clocks come from several tasks: the least of them. */
public final class Clocks {
    private final int tasks;
    private final Map<String, Long> read = new HashMap<>();

    public Clocks(int tasks) {
        this.tasks = tasks;
    }

    /** The time since a task's clock came; none until each of them has said one. */
    public OptionalLong merged(Row clock) {
        read.merge(clock.id, clock.appendedMs, Math::max);
        if (read.size() < tasks) return OptionalLong.empty();
        return read.values().stream().mapToLong(Long::longValue).min();
    }
}
