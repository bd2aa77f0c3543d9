"""When the records of a transaction became visible to consumers that read committed ones only.

Such a consumer sees a record once the broker's *last stable offset* is above it: all transactions
that began at or before it have ended. The end of a transaction is a marker in the log, to which the
broker gives an append time of its own. Kafka's clients do not deliver markers, so this reads the
partitions a second time, by fetches of its own, and parses the headers of record batches and the
markers alone.

A partition whose first batch is not of a transaction, or has the time of its producer (CreateTime),
is not read any further. In the latter the broker gives markers a time of its own clock, which no
record of the partition has.
"""

import asyncio
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.structs import TopicPartition

from services.runtime.counting import Ints
from services.runtime.kafka import KAFKA_TIMEOUT_S, KafkaUnavailableError, Place
from services.runtime.kafka_security import security
from services.runtime.record_batches import Batch, batches

_READ_COMMITTED = 1
_MAX_WAIT_MS, _MIN_BYTES = 500, 1
_PARTITION_BYTES, _MAX_BYTES = 1 << 20, 16 << 20
_RETRY_S = 0.1
_PATIENCE_S = 120.0  # a broker that was killed starts again within it
_OFFSET_OUT_OF_RANGE = 1
UNKNOWN_MS = -1


class TransactionsLostError(KafkaUnavailableError):
    """The log of some partitions no longer says when records became visible."""

    def __init__(self, places: list[Place], reason: str) -> None:
        topic, partition = places[0]
        super().__init__(
            f"the transactions of {topic}, partition {partition}, cannot be read: {reason}"
        )
        self.places = places


class CommitTimes:
    """When each record of one partition became visible, from its batches in order.

    offset: of the first record of interest. A transaction that was open there is not known; it is
    taken to end before its successors. next_offset: of the next batch to read. stable_offset: all
    records before it are visible or aborted. is_transactional: whether the first batch is one of a
    transaction, with LogAppendTime; None before it.

    A batch takes 24 bytes until the records before its end are forgotten; an open transaction 8,
    and 16 for each second in which it has records.
    """

    def __init__(self, offset: int, is_transactional: bool | None = None) -> None:
        self._first = self.next_offset = self.stable_offset = offset
        self.is_transactional = is_transactional
        self._begun: dict[int, int] = {}  # first offset of each open transaction, by producer
        self._written: dict[int, Counter[int]] = {}  # its records by second (epoch ms)
        self._aborted: Counter[int] = Counter()
        self._ends: list[int] = []  # records before an end, and not before the previous one, …
        self._times_ms: list[int] = []  # … became visible at this time

    def __len__(self) -> int:
        """Number of times that are known."""
        return len(self._ends)

    def add(self, batch: Batch) -> None:
        """Add the next batch; one that was added before is ignored."""
        if batch.next_offset <= self.next_offset:
            return
        self.next_offset = batch.next_offset
        if self.is_transactional is None:
            self.is_transactional = batch.is_transactional and batch.is_append_time
        if not batch.is_transactional:
            self._advance(batch)
        elif batch.commits is None:
            if not batch.records:  # compaction leaves a batch without its records, or its marker
                return
            self._begun.setdefault(batch.producer, batch.offset)
            second = batch.appended_ms - batch.appended_ms % 1000
            self._written.setdefault(batch.producer, Counter())[second] += batch.records
        else:
            self._begun.pop(batch.producer, None)
            written = self._written.pop(batch.producer, Counter())
            if not batch.commits:
                self._aborted.update(written)
            self._advance(batch)

    def _advance(self, batch: Batch) -> None:
        stable = min(self._begun.values(), default=batch.next_offset)
        if stable > self.stable_offset:
            self.stable_offset = stable
            self._ends.append(stable)
            self._times_ms.append(batch.appended_ms)

    def visible_ms(self, offsets: Ints) -> Ints:
        """Epoch milliseconds at which the records at these offsets, all of them below
        `stable_offset`, became visible; UNKNOWN_MS of those before the first offset."""
        at = np.searchsorted(np.array(self._ends, np.int64), offsets, side="right")
        is_known = offsets >= self._first
        times: Ints = np.full(len(offsets), UNKNOWN_MS, np.int64)
        times[is_known] = np.array(self._times_ms, np.int64)[at[is_known]]
        return times

    def forget(self, before: int) -> None:
        """Forget the times of records before an offset."""
        done = bisect_right(self._ends, before)
        del self._ends[:done], self._times_ms[:done]

    def take_aborted(self) -> Counter[int]:
        """Records of aborted transactions by second of LogAppendTime, since the last call."""
        taken, self._aborted = self._aborted, Counter()
        return taken

    def saved(self) -> dict[str, Any]:
        """All but the aborted records as JSON types, for `restored`."""
        return {
            "offsets": [self._first, self.next_offset, self.stable_offset],
            "is_transactional": self.is_transactional,
            "begun": [*self._begun.items()],
            "written": [[producer, [*each.items()]] for producer, each in self._written.items()],
            "ends": self._ends,
            "times_ms": self._times_ms,
        }

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> "CommitTimes":
        """The same from what was saved."""
        first, next_offset, stable_offset = saved["offsets"]
        result = cls(first, saved["is_transactional"])
        result.next_offset, result.stable_offset = next_offset, stable_offset
        result._begun = dict(saved["begun"])
        result._written = {producer: Counter(dict(each)) for producer, each in saved["written"]}
        result._ends, result._times_ms = [*saved["ends"]], [*saved["times_ms"]]
        return result


class CommitReader:
    """Reads the batches of partitions from these offsets. All calls must come from one thread at a
    time, which must not run an event loop.

    properties: of a librdkafka client. patience_s: how long a broker may not answer. has_read:
    whether one ever did. Raises ValueError for settings that aiokafka does not have, OSError for
    certificates that cannot be read.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        offsets: Mapping[Place, int],
        patience_s: float = _PATIENCE_S,
    ) -> None:
        access = security(properties)
        self._arguments = {
            "bootstrap_servers": properties["bootstrap.servers"].split(","),
            "client_id": properties["client.id"],
            "security_protocol": access.protocol,
            "ssl_context": access.ssl_context(),
        }
        if access.is_authenticated:
            self._arguments |= {
                "sasl_mechanism": access.mechanism,
                "sasl_plain_username": access.username,
                "sasl_plain_password": access.password,
            }
        self._partitions = {place: CommitTimes(offset) for place, offset in offsets.items()}
        self._passed: dict[Place, int] = {}
        self._patience_s = patience_s
        self.has_read = False
        self._runner: asyncio.Runner | None = None
        self._client: AIOKafkaClient | None = None

    def read_to(self, ends: Mapping[Place, int]) -> None:
        """Read until everything before these offsets, which a consumer of committed records has
        passed, is stable. Forgets what was before those of the previous call. Raises
        KafkaUnavailableError, TransactionsLostError, BatchFormatError."""
        for place in ends.keys() & self._partitions.keys():
            self._partitions[place].forget(self._passed.get(place, 0))
            self._passed[place] = ends[place]
        if not self._behind(ends):
            return
        if self._runner is None:
            self._runner = asyncio.Runner()
        self._runner.run(self._read_to(ends))

    def begin(self, place: Place, offset: int) -> None:
        """Read a partition from this offset on; of earlier records nothing is known. One that had
        transactions is taken to have them still."""
        known = self._partitions.get(place)
        had = True if known is not None and known.is_transactional else None
        self._partitions[place] = CommitTimes(offset, had)
        self._passed.pop(place, None)

    def saved(self) -> list[Any]:
        """What is known of each partition as JSON types, for `restore`; at most what one fetch
        has."""
        return [[*place, times.saved()] for place, times in self._partitions.items()]

    def restore(self, saved: list[Any]) -> None:
        """Restore what was saved of partitions."""
        for topic, partition, times in saved:
            self._partitions[topic, partition] = CommitTimes.restored(times)

    def has_transactions(self, place: Place) -> bool:
        """Whether the first record of a partition is one of a transaction."""
        return bool(self._partitions[place].is_transactional)

    def visible_ms(self, place: Place, offsets: Ints) -> Ints:
        """Epoch milliseconds at which records that the last `read_to` has passed became visible;
        UNKNOWN_MS of those from before the partition was begun."""
        return self._partitions[place].visible_ms(offsets)

    def take_aborted(self) -> dict[str, Counter[int]]:
        """Records of aborted transactions by topic and second (epoch ms), since the last call."""
        result: dict[str, Counter[int]] = defaultdict(Counter)
        for (topic, _), times in self._partitions.items():
            if taken := times.take_aborted():
                result[topic].update(taken)
        return dict(result)

    def close(self) -> None:
        """Close the connections."""
        if self._runner is None:
            return
        self._runner.run(self._disconnect())
        self._runner.close()
        self._runner = None

    def _behind(self, ends: Mapping[Place, int]) -> list[Place]:
        """The partitions that must be read further."""
        return [
            place
            for place, end in ends.items()
            if (times := self._partitions.get(place)) is not None
            and times.is_transactional is not False
            and times.stable_offset < end
        ]

    async def _read_to(self, ends: Mapping[Place, int]) -> None:
        deadline_s = time.monotonic() + self._patience_s
        reason = ""
        while behind := self._behind(ends):
            if time.monotonic() > deadline_s:
                if not reason:
                    raise TransactionsLostError(behind, "they do not end")
                topic, partition = behind[0]
                raise KafkaUnavailableError(
                    f"the transactions of {topic}, partition {partition}, cannot be read: {reason}"
                )
            try:
                async with asyncio.timeout(KAFKA_TIMEOUT_S):
                    await self._fetch(behind)
                reason = ""
            except (KafkaError, OSError, TimeoutError) as error:
                reason = str(error) or type(error).__name__
                await self._disconnect()
                await asyncio.sleep(_RETRY_S)

    async def _fetch(self, places: list[Place]) -> None:
        """One fetch from each broker that leads some of these partitions."""
        client = await self._connected()
        by_leader: dict[int, dict[str, list[tuple[int, int, int]]]] = {}
        for topic, partition in places:
            leader = client.cluster.leader_for_partition(TopicPartition(topic, partition))
            if leader is None or leader < 0:
                raise KafkaError(f"{topic}, partition {partition}, has no leader")
            next_offset = self._partitions[topic, partition].next_offset
            by_leader.setdefault(leader, {}).setdefault(topic, []).append(
                (partition, next_offset, _PARTITION_BYTES)
            )
        for leader, topics in by_leader.items():
            request = FetchRequest(
                _MAX_WAIT_MS, _MIN_BYTES, _MAX_BYTES, _READ_COMMITTED, list(topics.items())
            )
            response = await client.send(leader, request)
            for topic, partitions in response.topics:
                for partition, code, *_, data in partitions:
                    if code == _OFFSET_OUT_OF_RANGE:
                        raise TransactionsLostError([(topic, partition)], "they were removed")
                    if code:
                        raise KafkaError(f"{topic}, partition {partition}: error {code}")
                    self.has_read = True
                    times = self._partitions[topic, partition]
                    for batch in batches(data or b""):
                        times.add(batch)

    async def _connected(self) -> AIOKafkaClient:
        if self._client is None:
            self._client = AIOKafkaClient(**self._arguments)
            await self._client.bootstrap()
            # All topics: a request for one that was deleted would create it on some clusters.
            await self._client.set_topics(())
        return self._client

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
