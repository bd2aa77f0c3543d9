package tidegauge;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/**
 * Throws at the next record once a file exists. Who removes the file throws, so it happens once,
 * also with several threads and processes, and not again after a restart.
 */
final class FaultyRecord {
    private static final long LOOK_EVERY_MS = 5;
    private final Path file;
    private volatile boolean isDue;

    private FaultyRecord(Path file) {
        this.file = file;
        Lines.daemon("faulty-record", () -> {
            try {
                while (true) {
                    TimeUnit.MILLISECONDS.sleep(LOOK_EVERY_MS);
                    isDue = Files.exists(file);
                }
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        });
    }

    /** That of a path; null if it is empty. */
    static FaultyRecord of(String path) {
        return path.isEmpty() ? null : new FaultyRecord(Path.of(path));
    }

    void throwIfDue() {
        if (!isDue) return;
        try {
            if (!Files.deleteIfExists(file)) return;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        throw new IllegalStateException("a faulty record, planted by the workload");
    }
}
