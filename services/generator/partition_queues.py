"""Partitions of keys, and a queue for each partition (decisions 0105 and 0106).

An idempotent producer of librdkafka keeps at most five requests in flight per broker. While
messages wait for a sixth, its thread polls without pause ("make the next wakeup immediate",
rdkafka_broker.c), so with a slow broker the generator uses a whole core for it. Messages therefore
wait here, and librdkafka gets those of a few partitions at a time. All messages waiting for a
partition are sent in one batch: the slower the broker, the larger the batches.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from ctypes import CDLL
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from services.generator.message_batch import MESSAGE, MessageBatch, addresses

# Of five requests: a batch may use two, because its first message does not wait for the others.
PARTITIONS_IN_FLIGHT = 3
ONLY = np.zeros(1, np.int64)  # the position of the only message
_WHOLE = f"V{MESSAGE.itemsize}"

TopicPartition = tuple[str, int]


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
        found = (
            partition_of(None, start, size, self._count, None, None)
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        )
        return np.fromiter(found, np.int32, len(names))


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
