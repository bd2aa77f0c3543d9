"""A producer that passes whole batches to librdkafka and counts deliveries per batch.

librdkafka reports the delivery of a batch for one partition as one event, with the messages in the
order of sending. Two messages, the first and the last of a run of equal seconds, are therefore
enough to count the run. This costs about 0.01 µs per record, without per-record Python code.

Each partition has a queue (decisions 0105 and 0106). An idempotent producer of librdkafka keeps at
most five requests in flight per broker. While messages wait for a sixth, its thread polls without
pause ("make the next wakeup immediate", rdkafka_broker.c), so with a slow broker the generator uses
a whole core for it. Messages therefore wait here, and librdkafka gets those of a few partitions at
a time. All messages waiting for a partition are sent in one batch: the slower the broker, the
larger the batches.
"""

import ctypes
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from ctypes import CDLL
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from services.generator import librdkafka
from services.generator.librdkafka import ClientError, RdKafkaMessage
from services.generator.message_batch import MESSAGE, MessageBatch, addresses

# Of five requests: a batch may use two, because its first message does not wait for the others.
PARTITIONS_IN_FLIGHT = 3
ONLY = np.zeros(1, np.int64)  # the position of the only message
_WHOLE = f"V{MESSAGE.itemsize}"

TopicPartition = tuple[str, int]
POLL_MS = 100
COUNT_S = 0.1  # maximum time until a delivery is counted
FLUSH_LOOK_S = 0.002


@dataclass(frozen=True)
class QueuedMessages:
    """Messages for one partition, in order, and the batch whose memory they point to. since_s: time
    at which they were queued."""

    batch: MessageBatch
    messages: Any
    since_s: float


class PartitionQueues:
    """Waiting messages by partition, and the number in flight. Call with the lock held.

    max_partitions: limit of partitions with messages in flight; None: no limit, and nothing waits.
    batch_records: limit of a batch. timeout_s: messages that waited longer have failed.
    """

    def __init__(
        self,
        max_partitions: int | None,
        batch_records: int,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lock = threading.Lock()
        self._max_partitions = max_partitions
        self._batch_records = batch_records
        self._timeout_s = timeout_s
        self._clock = clock
        self._waiting: dict[TopicPartition, deque[QueuedMessages]] = {}
        self._turns: deque[TopicPartition] = deque()  # partitions that may be next
        self._under_way: dict[TopicPartition, int] = {}

    @property
    def waiting(self) -> bool:
        """Whether messages wait."""
        return bool(self._waiting)

    def pass_on(self, partition: TopicPartition, records: int) -> bool:
        """Count messages of a partition as in flight if they need not wait; returns whether it did
        so."""
        if self._turns or partition in self._waiting or self._is_full():
            return False
        under_way = self._under_way.get(partition, 0)
        if under_way and self._max_partitions is not None:
            return False
        self._under_way[partition] = under_way + records
        return True

    def put(self, partition: TopicPartition, batch: MessageBatch, messages: Any) -> None:
        """Queue messages of a batch."""
        parts = self._waiting.setdefault(partition, deque())
        if not parts and (self._max_partitions is None or partition not in self._under_way):
            self._turns.append(partition)
        parts.append(QueuedMessages(batch, messages, self._clock()))

    def take(self) -> tuple[TopicPartition, list[QueuedMessages]] | None:
        """The next batch to send, which counts as in flight from now on; None if there is none or
        the limit is reached."""
        if not self._turns or self._is_full():
            return None
        partition = self._turns.popleft()
        parts = self._waiting[partition]
        batch = [parts.popleft()]
        records = len(batch[0].messages)
        while parts and records + len(parts[0].messages) <= self._batch_records:
            records += len(parts[0].messages)
            batch.append(parts.popleft())
        if not parts:
            del self._waiting[partition]
        elif self._max_partitions is None:
            self._turns.append(partition)
        self._under_way[partition] = self._under_way.get(partition, 0) + records
        return partition, batch

    def done(self, partition: TopicPartition, records: int) -> None:
        """Mark this number of messages of a partition as no longer in flight."""
        left = self._under_way[partition] - records
        if left > 0:
            self._under_way[partition] = left
            return
        del self._under_way[partition]
        if partition in self._waiting:
            self._turns.append(partition)

    def expired(self, parts: list[QueuedMessages]) -> bool:
        """Whether a batch has waited longer than the timeout."""
        return self._clock() - parts[-1].since_s > self._timeout_s

    def clear(self) -> list[QueuedMessages]:
        """Remove all waiting messages and return them."""
        parts = [part for waiting in self._waiting.values() for part in waiting]
        self._waiting.clear()
        self._turns.clear()
        return parts

    def _is_full(self) -> bool:
        return self._max_partitions is not None and len(self._under_way) >= self._max_partitions


def joined(parts: list[QueuedMessages]) -> Any:
    """The messages of a batch as one array. Copies whole items: NumPy would skip the padding
    between their fields."""
    if len(parts) == 1:
        return parts[0].messages
    whole = [np.ascontiguousarray(part.messages).view(_WHOLE) for part in parts]
    return np.concatenate(whole).view(MESSAGE)


class KeyPartitions:
    """Partitions of the keys of one name table, with one lookup per key. Not thread-safe.

    The partitions are those of Java clients: murmur2 of the key, computed by librdkafka. A lookup
    for every record would cost more than a tenth of sending it.
    """

    def __init__(self, library: CDLL, partitions: int) -> None:
        self._library = library
        self._count = partitions
        self._known: NDArray[np.int32] = np.zeros(0, np.int32)
        self._newest: tuple[MessageBatch, NDArray[np.int32]] | None = None

    def of(self, batch: MessageBatch) -> NDArray[np.int32]:
        """Partition of each message of a batch."""
        if self._newest is None or self._newest[0] is not batch:
            known, names = self._known, batch.names
            if len(names) > len(known):
                self._known = np.concatenate([known, self._more(names[len(known) :])])
            self._newest = batch, self._known[batch.keys]
        return self._newest[1]

    def _more(self, names: pa.StringArray) -> NDArray[np.int32]:
        starts, sizes = addresses(names, slice(None))
        partition_of = self._library.rd_kafka_msg_partitioner_murmur2
        result = (
            partition_of(None, start, size, self._count, None, None)
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        )
        return np.fromiter(result, np.int32, len(names))


def by_partition(partitions: NDArray[np.int32]) -> list[tuple[int, NDArray[np.int64]]]:
    """Each partition that occurs, with the positions of its messages in order."""
    if len(partitions) == 1:
        return [(int(partitions[0]), ONLY)]
    if (partitions == partitions[0]).all():
        return [(int(partitions[0]), np.arange(len(partitions)))]
    order = np.argsort(partitions, kind="stable")
    sorted_partitions = partitions[order]
    first = np.flatnonzero(np.diff(sorted_partitions, prepend=-1))
    parts = np.split(order, first[1:])
    return list(zip(sorted_partitions[first].tolist(), parts, strict=True))


class BatchProducer:
    """A librdkafka producer and the counts of its deliveries.

    The caller counts them in `count_outcomes`, because a thread that waits for them wakes up for
    every record at low rates. The producer's thread waits for them only while messages wait;
    otherwise it counts every COUNT_S.

    partitions: number of partitions of each topic. queues: select the messages that librdkafka
    gets. in_order: the seconds of the batches never decrease. All batches must belong to one load,
    in which a key number means the same key in all batches of a topic.
    """

    def __init__(
        self,
        library: CDLL,
        properties: dict[str, Any],
        partitions: dict[str, int],
        queues: PartitionQueues,
        in_order: bool,
    ) -> None:
        self._library = library
        self._in_order = in_order
        self._queues = queues
        self._queue_records = int(properties["queue.buffering.max.messages"])
        # The limit of librdkafka is above ours, so it always accepts a whole batch.
        bound = {"queue.buffering.max.messages": 2 * self._queue_records}
        texts = {
            name: _text(value)
            for name, value in (properties | bound).items()
            if name != "logger"  # of confluent-kafka; this client does not log
        }
        self._handle = librdkafka.new_producer(library, texts)
        self._topics = {
            topic: library.rd_kafka_topic_new(self._handle, topic.encode(), None)
            for topic in partitions
        }
        self._partitions = {
            topic: KeyPartitions(library, count) for topic, count in partitions.items()
        }
        self._names: dict[int, str] = {}  # of topics, by their pointers in messages
        self._delivered: Callable[[int, int, int], None] = lambda *_: None
        # To the messages of an event; guarded by the lock.
        self._pointers: Any = (ctypes.c_void_p * 1024)()
        self._open = 0  # sent, neither acknowledged nor failed; guarded by the lock
        self._newest = 0  # those of the last call of `send`
        self._fatal = ""
        self.last_error = ""
        self._events = library.rd_kafka_queue_get_main(self._handle)
        self._awaited = threading.Event()  # messages wait for deliveries; guarded by the lock
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._count, name="deliveries", daemon=True)
        self._thread.start()

    def count_into(self, delivered: Callable[[int, int, int], None]) -> None:
        self._delivered = delivered

    def send(self, batch: MessageBatch, start: int, stop: int) -> int:
        if self._fatal:
            raise ClientError(self._fatal)
        partitions = self._partitions[batch.topic].of(batch)
        stop = min(stop, start + max(0, self._queue_records - self._open))
        if stop <= start:
            self._newest = 0  # the queue is full: look for all outcomes
            return start
        messages = batch.messages[start:stop]
        with self._queues.lock:
            for partition, positions in by_partition(partitions[start:stop]):
                part = messages if len(positions) == len(messages) else messages[positions]
                place = batch.topic, partition
                if self._queues.pass_on(place, len(part)):
                    self._produce(place, part)
                else:
                    self._queues.put(place, batch, part)
            self._newest = stop - start
            self._open += self._newest
            self._hand_over()
            waiting = self._queues.waiting
        if waiting:
            self._count_known()
            with self._queues.lock:
                if self._queues.waiting:
                    self._awaited.set()
        return stop

    def _hand_over(self) -> None:
        """Pass every batch that is allowed now to librdkafka. Call with the lock held."""
        while (batch := self._queues.take()) is not None:
            partition, parts = batch
            if self._queues.expired(parts):
                self._queues.done(partition, self._fail(parts))
                continue
            self._produce(partition, joined(parts))

    def _produce(self, partition: TopicPartition, messages: Any) -> None:
        """Pass messages that count as in flight to librdkafka. Call with the lock held."""
        taken = self._library.rd_kafka_produce_batch(
            self._topics[partition[0]],
            partition[1],
            librdkafka.COPY_VALUES,
            messages.ctypes.data,
            len(messages),
        )
        if taken != len(messages):
            self._queues.done(partition, self._refused(messages))

    def count_outcomes(self) -> None:
        """See ProducerBackend. Does not look for outcomes of the last call of `send`, which has
        only just returned."""
        while self._open > self._newest and not self._awaited.is_set() and self._take_event(0):
            continue

    def _count_known(self) -> None:
        """Count all outcomes known by now. The thread does it while it waits for deliveries."""
        while not self._awaited.is_set() and self._take_event(0):
            continue

    def flush(self, timeout_s: float) -> int:
        deadline_s = time.monotonic() + timeout_s
        while self._open and time.monotonic() < deadline_s:
            time.sleep(FLUSH_LOOK_S)
            self._count_known()
        return self._open

    def purge(self) -> None:
        with self._queues.lock:
            self._fail(self._queues.clear())
        self._library.rd_kafka_purge(self._handle, librdkafka.PURGE_ALL)

    def close(self) -> None:
        if self._closed.is_set():
            return
        self.purge()
        self._closed.set()
        self._awaited.set()  # wakes the thread
        self._thread.join(timeout=10)
        self._library.rd_kafka_queue_destroy(self._events)
        for topic in self._topics.values():
            self._library.rd_kafka_topic_destroy(topic)
        self._library.rd_kafka_destroy(self._handle)

    def _refused(self, messages: Any) -> int:
        """Count messages that librdkafka rejected (too large, unknown topic) as failed."""
        refused = messages[messages["error"] != librdkafka.NO_ERROR]
        self._note_error(int(refused["error"][-1]))
        return self._failed(refused)

    def _fail(self, parts: list[QueuedMessages]) -> int:
        return sum(self._failed(part.messages) for part in parts)

    def _failed(self, messages: Any) -> int:
        for second in messages["private"].tolist():
            self._delivered(second, 0, 1)
        self._open -= len(messages)
        return len(messages)

    def _note_error(self, error: int) -> None:
        self.last_error = self._library.rd_kafka_err2str(error).decode()

    def _count(self) -> None:
        while not self._closed.is_set():
            if self._awaited.wait(COUNT_S):
                self._take_event(POLL_MS)
            else:
                self._count_known()

    def _take_event(self, wait_ms: int) -> bool:
        """Handle the next event of the client, if there is one within this time."""
        library = self._library
        event = (
            None if self._closed.is_set() else library.rd_kafka_queue_poll(self._events, wait_ms)
        )
        if not event:
            return False
        kind = library.rd_kafka_event_type(event)
        if kind == librdkafka.EVENT_DELIVERED:
            self._count_delivered(event)
        elif kind == librdkafka.EVENT_ERROR:
            self.last_error = library.rd_kafka_event_error_string(event).decode()
            if library.rd_kafka_event_error_is_fatal(event):
                self._fatal = self.last_error
        library.rd_kafka_event_destroy(event)
        return True

    def _count_delivered(self, event: int) -> None:
        # Hold the lock: two threads count, and _hand_over counts expired messages too.
        with self._queues.lock:
            batch = self._messages_of(event)
            for second, failed, records in runs(batch, self._in_order):
                self._delivered(second, 0 if failed else records, records if failed else 0)
            for partition, records in self._partitions_of(batch):
                self._queues.done(partition, records)
            self._open -= len(batch)
            self._hand_over()
            if not self._queues.waiting:
                self._awaited.clear()

    def _messages_of(self, event: int) -> list[int]:
        """Pointers to the messages of an event. Call with the lock held."""
        count = self._library.rd_kafka_event_message_count(event)
        if count > len(self._pointers):
            self._pointers = (ctypes.c_void_p * (2 * count))()
        count = self._library.rd_kafka_event_message_array(event, self._pointers, count)
        result: list[int] = self._pointers[:count]
        return result

    def _partitions_of(self, pointers: list[int]) -> list[tuple[TopicPartition, int]]:
        """The partitions of messages and the number of messages in each. Delivered messages of an
        event are in one partition; failed ones may be in several."""
        if pointers and RdKafkaMessage.from_address(pointers[-1]).error == librdkafka.NO_ERROR:
            return [(self._partition_of(pointers[0]), len(pointers))]
        return list(Counter(map(self._partition_of, pointers)).items())

    def _partition_of(self, pointer: int) -> TopicPartition:
        message = RdKafkaMessage.from_address(pointer)
        name = self._names.get(message.topic)
        if name is None:
            name = self._library.rd_kafka_topic_name(message.topic).decode()
            self._names[message.topic] = name
        return name, message.partition


def runs(pointers: list[int], in_order: bool) -> Iterator[tuple[int, bool, int]]:
    """Second, failed flag and length of each run of adjacent messages that share both.

    in_order: the seconds never decrease, so all messages between two delivered ones of the same
    second are delivered and belong to it. Failed messages, and all messages if not in order, are
    read one by one.
    """
    position = 0
    while position < len(pointers):
        first = RdKafkaMessage.from_address(pointers[position])
        failed = first.error != librdkafka.NO_ERROR
        alone = failed or not in_order or position + 1 == len(pointers)
        end = position + 1 if alone else _end_of_run(pointers, position)
        yield first.private, failed, end - position
        position = end


def _end_of_run(pointers: list[int], start: int) -> int:
    """Position after the last delivered message of the second of `start`, found by bisection."""
    second = RdKafkaMessage.from_address(pointers[start]).private

    def same(position: int) -> bool:
        message = RdKafkaMessage.from_address(pointers[position])
        return bool(message.error == librdkafka.NO_ERROR and message.private == second)

    if same(len(pointers) - 1):
        return len(pointers)
    low, high = start, len(pointers) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if same(middle) else (low, middle)
    return high


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
