package tidegauge;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.ToLongFunction;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;

/**
 * Until when everything appended to some partitions has been processed, by asking the broker for
 * their ends. A consumer's own lag is as old as its last fetch and counts records that wait in its
 * buffers as read.
 */
public final class Ends {
    private final Admin admin;
    private final long patienceMs;
    private final Map<TopicPartition, OffsetSpec> partitions = new HashMap<>();
    private KafkaFuture<Map<TopicPartition, ListOffsetsResultInfo>> answer;
    private long askedMs;

    /** patienceMs: how long a call waits for the broker; the answer is used by a later one. */
    public Ends(Admin admin, Collection<TopicPartition> given, long patienceMs) {
        this.admin = admin;
        this.patienceMs = patienceMs;
        given.forEach(partition -> partitions.put(partition, OffsetSpec.latest()));
    }

    /**
     * Long.MIN_VALUE without an answer, or if something is left. next: the offset after the last
     * record that was processed.
     */
    public long processedUntilMs(long nowMs, ToLongFunction<TopicPartition> next) {
        if (answer == null) {
            askedMs = nowMs;
            answer = admin.listOffsets(partitions).all();
        }
        try {
            var ends = answer.get(patienceMs, TimeUnit.MILLISECONDS);
            answer = null;
            var isAll = ends.entrySet().stream()
                .allMatch(end -> next.applyAsLong(end.getKey()) >= end.getValue().offset());
            return isAll ? askedMs : Long.MIN_VALUE;
        } catch (TimeoutException error) {
            return Long.MIN_VALUE;
        } catch (ExecutionException error) {
            System.err.println("the ends of the inputs are not known: " + error.getCause());
            answer = null;
            return Long.MIN_VALUE;
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return Long.MIN_VALUE;
        }
    }
}
