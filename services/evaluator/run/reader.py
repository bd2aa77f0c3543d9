"""Reads the topics of a run in batches, with LogAppendTime, and reports how far it has read.

Several evaluators share a run by partition number. All topics of a run have the same partitioner
and the same number of partitions, so records with one key have the same partition number in every
topic. Records to be matched are therefore in one shard, and the counts of all instances add up to
those of a single one.

>>> Shard(1, 2).of({"t": (10, 20, 30, 40)})
{('t', 1): 20, ('t', 3): 40}

`ClockOffset` serves the time between `prepare` and `ready`: an evaluator is ready when it has
measured the offset of the generator's clock from the broker's on the probe traffic, and the offset
is acceptable.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import compress, groupby
from operator import not_

import confluent_kafka
import numpy as np
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient, OffsetSpec

from schemas import catalogue
from schemas.events import ClockOffsetMeasured, Ready
from schemas.frame import STAMP, STAMP_HEADER
from schemas.protocol import RunPlan, probe_run_id
from services.evaluator.columnar.columns import UNKNOWN, Ints
from services.evaluator.columnar.decode import Decoded, input_decoder
from services.evaluator.pairing.counters import pack_offsets
from services.evaluator.pairing.evaluation import RecordBatch
from services.runtime.counting import by_value, int_pairs
from services.runtime.events import Events
from services.runtime.kafka import (
    KAFKA_TIMEOUT_S,
    KafkaUnavailableError,
    client_properties,
    watermarks,
)
from services.runtime.process import Clock, now_ms
from services.runtime.settings import ServiceSettings
from services.runtime.transactions import CommitReader

TopicPartition = tuple[str, int]  # topic and partition
Offsets = dict[str, tuple[int, ...]]  # by topic, per partition
# Prefetch enough for the next reads, and refill soon after they have taken records. Stop if records
# were deleted before they were read: skipping them corrupts verdicts. The end of a partition is
# reported because markers of transactions take offsets and are not delivered.
FETCHING = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "fetch.min.bytes": 1 << 20,
    "fetch.wait.max.ms": 250,
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 200_000,
    "queued.max.messages.kbytes": 64 * 1024,
}
EndOffsets = Callable[[list[TopicPartition]], dict[TopicPartition, int]]
PATIENCE_MS = 30_000  # time to wait for a probe record with a short transit time


@dataclass(frozen=True)
class PartitionShard:
    """Every `count`th partition, starting with number `index`; all partitions by default.
    Each shard has the hand-overs to the pipelines."""

    index: int = 0
    count: int = 1

    def of(self, offsets: Offsets) -> dict[TopicPartition, int]:
        """The offsets of this shard's partitions."""
        return {
            (topic, partition): offset
            for topic, every in offsets.items()
            for partition, offset in enumerate(every)
            if partition % self.count == self.index or topic == catalogue.FETCHES
        }


ALL = PartitionShard()


def reached(positions: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> bool:
    """Whether everything before `ends` has been read."""
    return all(positions[place] >= end for place, end in ends.items())


def stamp_ns(headers: list[tuple[str, bytes]] | None) -> int:
    """The stamp among the headers of a record, nanoseconds; UNKNOWN without a valid one."""
    for name, value in headers or ():
        if name == STAMP_HEADER and isinstance(value, bytes) and len(value) == STAMP.size:
            stamp: int = STAMP.unpack(value)[0]
            return stamp if stamp >= 0 else UNKNOWN
    return UNKNOWN


class TimestampError(RuntimeError):
    """The topics cannot be measured: no LogAppendTime, or several leaders."""


class DeletedError(RuntimeError):
    """Records of the run have been deleted, so it cannot be counted from its start."""


def end_offsets_by(admin: AdminClient) -> EndOffsets:
    """End offsets of all partitions, in one request on a separate connection, so that no fetch
    delays it. Raises KafkaException."""

    def ends(places: list[TopicPartition]) -> dict[TopicPartition, int]:
        asked = {confluent_kafka.TopicPartition(*place): OffsetSpec.latest() for place in places}
        offsets = admin.list_offsets(asked, request_timeout=KAFKA_TIMEOUT_S)
        return {
            (place.topic, place.partition): future.result(KAFKA_TIMEOUT_S).offset
            for place, future in offsets.items()
        }

    return ends


def commit_reader(
    settings: ServiceSettings, offsets: dict[TopicPartition, int], inputs: tuple[str, ...]
) -> CommitReader:
    """A reader of the transactions of a run's outputs from these offsets."""
    properties = client_properties(settings, "evaluator-transactions")
    others = {*inputs, catalogue.FETCHES}
    of_outputs = {place: offset for place, offset in offsets.items() if place[0] not in others}
    return CommitReader(properties, of_outputs)


def offsets_at(consumer: Consumer, topics: Offsets, time_ms: int) -> dict[TopicPartition, int]:
    """The offset of the first record of each partition appended at or after a time, or the end
    offset. `topics`: any offsets by topic and partition. Raises KafkaException."""
    asked = [
        confluent_kafka.TopicPartition(topic, partition, time_ms)
        for topic, offsets in topics.items()
        for partition in range(len(offsets))
    ]
    result = consumer.offsets_for_times(asked, KAFKA_TIMEOUT_S)
    return {
        (each.topic, each.partition): each.offset
        if each.offset >= 0
        else watermarks(consumer, each)[1]
        for each in result
    }


@dataclass(frozen=True)
class ReadBatch:
    """Records of one topic as read; `messages` are kept for dead letters."""

    batch: RecordBatch
    messages: list[KafkaMessage]


@dataclass(frozen=True)
class Frontier:
    """All records appended before these times (epoch ms) have been read. positions: the next offset
    of every partition of the shard. aborted: records of transactions that were aborted, by topic
    and second (epoch ms), since the previous frontier."""

    input_ms: int
    output_ms: int
    positions: dict[TopicPartition, int]
    aborted: dict[str, Counter[int]] = field(default_factory=dict)

    def behind_ms(self, now_ms: int, since_ms: int) -> int:
        """Lag in milliseconds. since_ms: when reading started, which is used while a topic with
        records has not been read at all (its time is then 0)."""
        return max(0, now_ms - (min(self.input_ms, self.output_ms) or since_ms))


@dataclass(frozen=True)
class _PartitionRows:
    """The records of one partition in a batch: their rows, the last of these, and the offset after
    it."""

    partition: int
    rows: slice | Ints
    last: int
    next_offset: int


class Reader:
    """Reads its shard of every topic of a run from the plan's offsets. Not thread-safe. `frontier`
    covers the batches returned before it.

    inputs: the input topics of the run. with_offsets: whether batches of outputs contain partition
    and offset of each record; with_input_offsets: the same of inputs; with_stamps:
    whether batches contain the stamps of records (schemas.frame.STAMP_HEADER). commits: reads the
    transactions of outputs, from the same offsets; without it nothing is known of them.
    """

    def __init__(
        self,
        consumer: Consumer,
        ends: EndOffsets,
        start_offsets: Offsets,
        inputs: tuple[str, ...],
        clock: Clock = now_ms,
        *,
        shard: PartitionShard = ALL,
        with_offsets: bool = False,
        with_input_offsets: bool = False,
        with_stamps: bool = False,
        commits: CommitReader | None = None,
    ) -> None:
        self._consumer = consumer
        self._commits = commits
        self._clock = clock
        self._ends = ends
        self._inputs = frozenset(inputs)
        self._with_offsets = with_offsets
        self._with_input_offsets = with_input_offsets
        self._with_stamps = with_stamps
        self._next = shard.of(start_offsets)
        self._read_ms = dict.fromkeys(self._next, 0)
        self._asked: dict[TopicPartition, int] = {}  # the end offsets at the latest query
        self._delay_ms: int | None = None  # the least of records appended after a query
        consumer.assign(
            [confluent_kafka.TopicPartition(*place, at) for place, at in self._next.items()]
        )

    def read(self, records: int, timeout_s: float) -> list[ReadBatch]:
        """The next records, by topic, inputs first. Raises TimestampError, KafkaException,
        KafkaUnavailableError."""
        by_topic: dict[str, list[KafkaMessage]] = {}
        messages = self._consumer.consume(records, timeout_s)
        errors = list(map(KafkaMessage.error, messages))
        reports: list[KafkaMessage] = []
        # No Python statement runs per record, here and below.
        if any(errors):
            reports = list(compress(messages, errors))
            messages = list(compress(messages, map(not_, errors)))
        for topic, stretch in groupby(messages, KafkaMessage.topic):
            by_topic.setdefault(topic, []).extend(stretch)
        ordered = sorted(by_topic, key=lambda topic: topic not in self._inputs)
        parts = {topic: _parts_of(by_topic[topic]) for topic in ordered}
        passed = {
            (topic, part.partition): part.next_offset
            for topic, (_, of_topic) in parts.items()
            for part in of_topic
        }
        for message in filter(_is_end, reports):
            place = message.topic(), message.partition()
            passed[place] = max(passed.get(place, self._next[place]), message.offset())
        if self._commits is not None:
            self._commits.read_to(passed)
        batches = [self._batch(topic, by_topic[topic], *parts[topic]) for topic in ordered]
        self._next |= passed
        return batches

    def frontier(self) -> Frontier:
        """How far has been read; asks the broker for the end offset of every partition. The time of
        the query is the broker's or earlier: own clock minus the least delay of a record, which is
        the transit time and how far own clock is ahead."""
        asked_ms = self._clock() - max(0, self._delay_ms or 0)
        ends = self._asked = self._ends(list(self._next))
        for place, end in ends.items():
            if self._next[place] >= end:
                self._read_ms[place] = max(self._read_ms[place], asked_ms)
        reached = {place: self._read_ms[place] for place in ends}
        inputs = [ms for (topic, _), ms in reached.items() if topic in self._inputs]
        outputs = [ms for (topic, _), ms in reached.items() if topic not in self._inputs]
        aborted = {} if self._commits is None else self._commits.take_aborted()
        return Frontier(min(inputs), min(outputs, default=min(inputs)), dict(self._next), aborted)

    def close(self) -> None:
        """Close the clients."""
        self._consumer.close()
        if self._commits is not None:
            self._commits.close()

    def _batch(
        self,
        topic: str,
        messages: list[KafkaMessage],
        partitions: Ints,
        parts: list[_PartitionRows],
    ) -> ReadBatch:
        count = len(messages)
        kinds, appended_ms = int_pairs(map(KafkaMessage.timestamp, messages), count)
        if (kinds != TIMESTAMP_LOG_APPEND_TIME).any():
            raise TimestampError(f"topic {topic} does not use LogAppendTime")
        for part in parts:
            place, last_ms = (topic, part.partition), int(appended_ms[part.last])
            self._read_ms[place] = max(self._read_ms[place], last_ms)
            if part.next_offset > self._asked.get(place, part.next_offset):
                self._saw(last_ms)
        values = list(map(KafkaMessage.value, messages))
        if topic in self._inputs or topic == catalogue.FETCHES:
            offsets = _offsets_of(messages) if self._with_input_offsets else None
            batch = RecordBatch(
                topic,
                appended_ms,
                values,
                partitions=partitions,
                offsets=offsets,
                stamps_ns=self._stamps_ns(messages),
            )
            return ReadBatch(batch, messages)
        keys = list(map(KafkaMessage.key, messages))
        places = self._places(partitions, messages)
        visible_ms = self._visible_ms(topic, messages, parts)
        batch = RecordBatch(
            topic,
            appended_ms,
            values,
            keys,
            partitions,
            places,
            visible_ms,
            stamps_ns=self._stamps_ns(messages),
        )
        return ReadBatch(batch, messages)

    def _stamps_ns(self, messages: list[KafkaMessage]) -> Ints | None:
        if not self._with_stamps:
            return None
        stamps = map(stamp_ns, map(KafkaMessage.headers, messages))
        return np.fromiter(stamps, np.int64, len(messages))

    def _visible_ms(
        self, topic: str, messages: list[KafkaMessage], parts: list[_PartitionRows]
    ) -> Ints | None:
        """When each record became visible; None if no partition of them has transactions."""
        commits = self._commits
        if commits is None:
            return None
        known = [part for part in parts if commits.has_transactions((topic, part.partition))]
        if not known:
            return None
        result = np.full(len(messages), UNKNOWN, np.int64)
        offsets = _offsets_of(messages)
        for part in known:
            place = topic, part.partition
            result[part.rows] = commits.visible_ms(place, offsets[part.rows])
        return result

    def _saw(self, appended_ms: int) -> None:
        delay_ms = self._clock() - appended_ms
        self._delay_ms = delay_ms if self._delay_ms is None else min(delay_ms, self._delay_ms)

    def _places(self, partitions: Ints, messages: list[KafkaMessage]) -> Ints | None:
        if not self._with_offsets:
            return None
        return pack_offsets(partitions, _offsets_of(messages))


def _offsets_of(messages: list[KafkaMessage]) -> Ints:
    return np.fromiter(map(KafkaMessage.offset, messages), np.int64, len(messages))


def _parts_of(messages: list[KafkaMessage]) -> tuple[Ints, list[_PartitionRows]]:
    """The partition of each message of a topic, and the parts of the batch."""
    partitions = np.fromiter(map(KafkaMessage.partition, messages), np.int64, len(messages))
    parts = []
    for partition, rows in by_value(partitions):
        last = rows.stop - 1 if isinstance(rows, slice) else int(rows[-1])
        parts.append(_PartitionRows(partition, rows, last, messages[last].offset() + 1))
    return partitions, parts


def _is_end(message: KafkaMessage) -> bool:
    """Whether it reports the end of a partition; False for a retriable error. Raises KafkaException
    for any other."""
    error = message.error()
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    if error.fatal() or not error.retriable():
        raise KafkaException(error)
    return False


def check_topics(consumer: Consumer, topics: tuple[str, ...]) -> None:
    """Refuse to measure unless one broker leads all partitions of all topics.

    Raises TimestampError if several do, KafkaUnavailableError if a topic does not exist.
    """
    known = consumer.list_topics(timeout=KAFKA_TIMEOUT_S).topics
    gone = [topic for topic in topics if topic not in known]
    if gone:
        raise KafkaUnavailableError(f"topic {gone[0]} does not exist")
    leaders = {p.leader for topic in topics for p in known[topic].partitions.values()}
    if len(leaders) != 1:
        raise TimestampError(
            f"brokers {sorted(leaders)} lead the partitions of this run; one broker must lead all, "
            "because a latency is the difference of two timestamps of one clock"
        )


def check_kept(consumer: Consumer, begins: dict[TopicPartition, int]) -> None:
    """Check that every record from these offsets on is still retained.

    Raises DeletedError, KafkaException.
    """
    for place, begin in begins.items():
        low, high = watermarks(consumer, confluent_kafka.TopicPartition(*place))
        if not low <= begin <= high:  # above: the topic was recreated
            raise DeletedError(
                f"The first records of the run in {place[0]} are no longer retained, so the run "
                "cannot be recounted."
            )


class ClockOffset:
    """The minimum difference between append time and send time. It bounds the clock offset: it is
    the offset plus the shortest transit time to the broker."""

    def __init__(self, plan: RunPlan) -> None:
        workload = plan.request.workload
        self._codec = plan.request.domain.codec
        self._records = {
            each.topic: each.record for domain in plan.request.domains for each in domain.inputs
        }
        self._run_id = probe_run_id(plan.request.run_id)
        self._decode = input_decoder(workload.content.format)
        self._rules = workload.validity
        self.records = 0
        self.offset_ms = float("inf")

    def add(self, batch: RecordBatch) -> None:
        """Add records of an input topic; records of other runs are ignored."""
        for rows in self._decoded(batch):
            mine = rows.of_run(self._run_id)
            if not len(mine):
                continue
            # LogAppendTime is truncated to milliseconds: on average half a millisecond is missing.
            away_us = (batch.appended_ms[mine.places] * 1000 + 500) - mine.ints("scheduled_at")
            self.records += len(mine)
            self.offset_ms = min(self.offset_ms, float(away_us.min()) / 1000)

    def _decoded(self, batch: RecordBatch) -> list[Decoded]:
        return self._decode(self._codec, (self._records[batch.topic],), batch.values)[0]

    @property
    def is_ahead(self) -> bool:
        """Whether the generator's clock is too far ahead. More records cannot change that."""
        return self.offset_ms < -self._rules.max_clock_ahead_ms

    def complaint(self) -> str:
        """Why nothing can be measured with these clocks; empty if it can."""
        if self.is_ahead:
            return (
                f"The generator's clock is at least {-self.offset_ms:.1f} ms ahead of the "
                "broker's, so latencies from the scheduled time would be too small."
            )
        if self.records and self.offset_ms > self._rules.max_clock_behind_ms:
            return (
                f"The fastest probe record was appended {self.offset_ms:.0f} ms after it was sent, "
                f"allowed {self._rules.max_clock_behind_ms:g} ms (max_clock_behind_ms): the "
                "generator's clock is behind the broker's, or the broker is slow."
            )
        return ""


class Readiness:
    """Reads the probe traffic of one run until it can report ready or the reason why not."""

    def __init__(
        self, plan: RunPlan, shard: PartitionShard, events: Events, clock: Clock = now_ms
    ) -> None:
        self._run_id = plan.request.run_id
        self._shard = shard
        self._events = events
        self._clock = clock
        self._clocks = ClockOffset(plan)
        self._first_seen_ms: int | None = None

    def add(self, batch: RecordBatch) -> None:
        """Add records of an input topic."""
        self._clocks.add(batch)

    def tell(self) -> str | None:
        """Publish the clock offset and, if it is acceptable, `ready`.

        Returns None while undecided, an empty string once ready, else the reason why nothing can be
        measured.
        """
        probes = self._clocks
        if not probes.records:
            return None
        if self._first_seen_ms is None:
            self._first_seen_ms = self._clock()
        complaint = probes.complaint()
        is_patient = self._clock() - self._first_seen_ms < PATIENCE_MS
        if complaint and is_patient and not probes.is_ahead:
            return None
        offset_ms, records = round(probes.offset_ms, 1), probes.records
        self._events.publish(
            ClockOffsetMeasured(run_id=self._run_id, offset_ms=offset_ms, records=records)
        )
        if not complaint:
            self._events.publish(
                Ready(
                    run_id=self._run_id,
                    service="evaluator",
                    instance_index=self._shard.index,
                    instance_count=self._shard.count,
                )
            )
        return complaint
