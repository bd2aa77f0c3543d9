"""Lag of the consumer groups named in a watch: in records, in time, and until they have caught up.

Lag in time is the age of the record that a group reads next: the first one at or after its
committed offset that a consumer with `isolation.level=read_uncommitted` receives, so markers of
transactions and offsets that compaction left empty are passed over. That record is fetched, and its
own timestamp is used: nothing is interpolated. A group that has nothing left to read is 0 behind. A
committed offset before the first record of the partition stands for that record. A partition
without a committed offset has no lag.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, Final

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from schemas.report import GroupLag
from schemas.threshold import LAG_RECORDS, LAG_SECONDS, OF_GROUP
from services.runtime.kafka import LAG, Place, committed_offsets, newest_offsets, said_by_kafka
from services.runtime.process import Clock, now_ms
from services.watcher.troubles import REFUSALS, Trouble

OFFSET: Final = "kafka_consumergroup_current_offset"
NEXT_RECORD: Final = "kafka_consumergroup_next_record_timestamp_seconds"
LAG_S: Final = "kafka_consumergroup_lag_seconds"
CATCH_UP_S: Final = "kafka_consumergroup_catch_up_seconds"
TIMEOUT_S: Final = 5.0
NO_ANSWER: Final = "Kafka did not report it in time"
MAX_PARTITIONS: Final = 5_000
MAX_FETCHED: Final = 500  # partitions that are fetched at once
MAX_SAMPLES: Final = 1_000  # of an event
SPAN_MS: Final = 60_000  # rates are those of this time
LEAST_SPAN_MS: Final = 10_000
MOST_UNKNOWN_MS: Final = 30_000  # without a known lag of a group, six questions
# One record of each partition is wanted, and the end of those without one.
FETCHING: Final[dict[str, Any]] = {
    "group.id": "tidegauge-watch",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_uncommitted",
    "allow.auto.create.topics": False,
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 10,
    "fetch.message.max.bytes": 65_536,
    "fetch.max.bytes": 4_194_304,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 8_192,
}


@dataclass(frozen=True)
class PartitionLag:
    """Lag of a group in one partition.

    member: id of the member that it is assigned to; empty without one. offset: the committed one.
    records: from there to the end. next_ms: timestamp of the record that is read next; None if
    there is none, or it could not be read. behind_ms: its age, 0 without one, None if it could not
    be read or has no timestamp. catch_up_s: time until everything is read, at the rates of the last
    minute; None if that is never, or the rates are unknown.
    """

    topic: str
    partition: int
    member: str
    offset: int
    records: int
    next_ms: int | None = None
    behind_ms: int | None = None
    catch_up_s: float | None = None

    def samples(self) -> Iterator[tuple[str, float]]:
        """Name and value of each series that has one."""
        yield LAG, float(self.records)
        yield OFFSET, float(self.offset)
        if self.next_ms is not None:
            yield NEXT_RECORD, self.next_ms / 1000
        if self.behind_ms is not None:
            yield LAG_S, self.behind_ms / 1000
        if self.catch_up_s is not None:
            yield CATCH_UP_S, self.catch_up_s


@dataclass(frozen=True)
class TopicLag:
    """Lag of a group in a topic: the sum of the records, the longest of the times. A time is None
    if that of any partition is."""

    group: str
    topic: str
    records: int
    behind_s: float | None
    catch_up_s: float | None


@dataclass(frozen=True)
class ObservedGroup:
    """Lag of a group in its partitions, in order. asked_ms: this machine's time just after its
    committed offsets were returned, to which ages are measured."""

    group: str
    asked_ms: int
    partitions: tuple[PartitionLag, ...]

    def events(self) -> Iterator[dict[str, Any]]:
        """Fields of `results.metrics` events without their source."""
        samples = [
            (name, value, {"group": self.group, **_labels(each)})
            for each in self.partitions
            for name, value in each.samples()
        ]
        for first in range(0, len(samples), MAX_SAMPLES):
            names, values, labels = zip(*samples[first : first + MAX_SAMPLES], strict=True)
            count = len(names)
            yield {
                "time": self.asked_ms,
                "interval_s": None,
                "names": list(names),
                "labels": list(labels),
                "kinds": ["gauge"] * count,
                "values": list(values),
                "increases": [None] * count,
            }

    def topics(self) -> list[TopicLag]:
        """The lag in each topic."""
        result = []
        for topic in sorted({each.topic for each in self.partitions}):
            mine = [each for each in self.partitions if each.topic == topic]
            behind_ms = _longest(each.behind_ms for each in mine)
            result.append(
                TopicLag(
                    self.group,
                    topic,
                    sum(each.records for each in mine),
                    None if behind_ms is None else behind_ms / 1000,
                    _longest(each.catch_up_s for each in mine),
                )
            )
        return result


def _labels(lag: PartitionLag) -> dict[str, str]:
    place = {"topic": lag.topic, "partition": str(lag.partition)}
    return place | ({"member": lag.member} if lag.member else {})


def _longest(times: Iterable[float | None]) -> float | None:
    known = list(times)
    return None if None in known else max(each for each in known if each is not None)


@dataclass
class _KnownTimes:
    """When the lag of a group was known: first, last, and the longest time without, ms."""

    first_ms: int
    last_ms: int
    gap_ms: int = 0

    def add(self, at_ms: int) -> None:
        self.gap_ms = max(self.gap_ms, at_ms - self.last_ms)
        self.last_ms = max(self.last_ms, at_ms)


class LagTotals:
    """Lag of consumer groups in a run, as it was at each question. Pure."""

    def __init__(self) -> None:
        self._topics: dict[tuple[str, str], GroupLag] = {}
        self._known: dict[tuple[str, str], _KnownTimes] = {}  # by group, and figure of OF_GROUP

    def add(self, observed: ObservedGroup) -> None:
        """Note the lag of a group."""
        lags, at_ms = observed.topics(), observed.asked_ms
        for lag in lags:
            known = self._topics.get((lag.group, lag.topic))
            ages = [
                each for each in (known.max_s if known else None, lag.behind_s) if each is not None
            ]
            self._topics[lag.group, lag.topic] = GroupLag(
                group=lag.group,
                topic=lag.topic,
                max=max(lag.records, known.max if known else 0),
                last=lag.records,
                max_s=max(ages, default=None),
                last_s=lag.behind_s,
                caught_up_in_s=lag.catch_up_s,
            )
        is_known = {LAG_RECORDS: True, LAG_SECONDS: all(each.behind_s is not None for each in lags)}
        for figure in (each for each in OF_GROUP if is_known[each]):
            name = (observed.group, figure)
            self._known.setdefault(name, _KnownTimes(at_ms, at_ms)).add(at_ms)

    def rows(self) -> list[GroupLag]:
        """The lag of each group in each topic."""
        return list(self._topics.values())

    def unknown_ms(self, group: str, figure: str, from_ms: int, until_ms: int) -> int:
        """The longest part of a time in which a figure of a group was not known in all its
        topics."""
        known = self._known.get((group, figure))
        if known is None:
            return until_ms - from_ms
        return max(known.first_ms - from_ms, known.gap_ms, until_ms - known.last_ms)

    def saved(self) -> dict[str, Any]:
        """As JSON types, for `restore`."""
        known = [
            [*name, each.first_ms, each.last_ms, each.gap_ms] for name, each in self._known.items()
        ]
        return {"topics": [each.model_dump() for each in self.rows()], "known": known}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore saved state."""
        lags = map(GroupLag.model_validate, saved["topics"])
        self._topics = {(each.group, each.topic): each for each in lags}
        self._known = {
            (group, figure): _KnownTimes(*times) for group, figure, *times in saved["known"]
        }


class Progress:
    """What a group has committed in a partition, and where this ended, over the last minute. Pure;
    times in milliseconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int, int]] = deque()

    def add(self, now: int, offset: int, end: int) -> None:
        """Note an observation. After an offset or an end that is lower than before, as after a
        reset or in a new topic of the same name, earlier ones are forgotten."""
        if self._seen and (offset < self._seen[-1][1] or end < self._seen[-1][2]):
            self._seen.clear()
        while len(self._seen) > 1 and now - self._seen[1][0] >= SPAN_MS:
            self._seen.popleft()
        self._seen.append((now, offset, end))

    def catch_up_s(self) -> float | None:
        """Seconds until the offset reaches the end if both go on as they did; None if it does not,
        or was not observed for long enough."""
        first_ms, first_offset, first_end = self._seen[0]
        now, offset, end = self._seen[-1]
        if offset >= end:
            return 0.0
        gained = (offset - first_offset) - (end - first_end)
        if now - first_ms < LEAST_SPAN_MS or gained <= 0:
            return None
        return (end - offset) * (now - first_ms) / gained / 1000


class NextRecords:
    """Fetches the first record at or after offsets. connect: opens a consumer with FETCHING, when
    it is needed first."""

    def __init__(self, connect: Callable[[], Consumer]) -> None:
        self._connect = connect
        self._consumer: Consumer | None = None

    def read(self, offsets: Mapping[Place, int], within_s: float) -> dict[Place, Message | None]:
        """The record of each partition; None if there is none up to its end. Partitions that could
        not be read in time are left out. Raises KafkaException if one must not be read."""
        self._consumer = self._consumer or self._connect()
        result: dict[Place, Message | None] = {}
        end_s = time.monotonic() + within_s
        places = list(offsets)
        try:
            while places and time.monotonic() < end_s:
                several, places = places[:MAX_FETCHED], places[MAX_FETCHED:]
                self._fetch({place: offsets[place] for place in several}, result, end_s)
        finally:
            self._consumer.unassign()
        return result

    def _fetch(
        self, offsets: Mapping[Place, int], result: dict[Place, Message | None], end_s: float
    ) -> None:
        assert self._consumer is not None
        self._consumer.assign([TopicPartition(*place, at) for place, at in offsets.items()])
        missing = set(offsets)
        while missing and (left_s := end_s - time.monotonic()) > 0:
            for message in self._consumer.consume(len(missing), min(left_s, 0.1)):
                place, error = (message.topic(), message.partition()), message.error()
                if error is not None and error.code() in REFUSALS:
                    raise KafkaException(error)
                if place not in missing or (error and error.code() != KafkaError._PARTITION_EOF):
                    continue
                result[place] = None if error else message
                missing.discard(place)
                self._consumer.incremental_unassign([TopicPartition(*place)])


@dataclass
class GroupLagReader:
    """Reads the lag of some groups in a thread, so that groups that do not answer delay nothing
    else. troubles: groups that could not be read, each once until it answers."""

    admin: AdminClient
    next_records: NextRecords
    groups: tuple[str, ...]
    clock: Clock = now_ms
    troubles: list[Trouble] = field(default_factory=list)
    _failed: dict[str, str] = field(default_factory=dict)
    _progress: dict[tuple[str, Place], Progress] = field(default_factory=dict)
    _unread: set[tuple[str, Place]] = field(default_factory=set)  # in time, at the last request
    _asked_ms: int = 0
    _asked: "Future[tuple[list[ObservedGroup], dict[str, str]]] | None" = None

    def ask(self) -> None:
        """Ask for the lag of all groups, unless the answer to the last request is pending. One that
        has been pending for MOST_UNKNOWN_MS is a problem of all groups."""
        if self._asked is None:
            self._asked, self._asked_ms = Future(), self.clock()
            Thread(target=self._read, args=(self._asked,), name="group-lag", daemon=True).start()
        elif self.clock() - self._asked_ms > MOST_UNKNOWN_MS:
            self._tell_failed(dict.fromkeys(self.groups, NO_ANSWER))

    def answer(self) -> list[ObservedGroup]:
        """The lag of groups that have committed offsets, once for each request."""
        if self._asked is None or not self._asked.done():
            return []
        lags, failed = self._asked.result()
        self._asked = None
        self._tell_failed(failed)
        return [lag for lag in lags if lag.partitions]

    def _tell_failed(self, failed: dict[str, str]) -> None:
        """Note why groups could not be read, and that all others could."""
        for group in sorted(failed.keys() - self._failed.keys()):
            detail = {"group": group, "reason": failed[group]}
            self.troubles.append(Trouble("group_not_read", detail))
        self._failed = failed

    def _read(self, asked: "Future[tuple[list[ObservedGroup], dict[str, str]]]") -> None:
        lags: list[ObservedGroup] = []
        failed: dict[str, str] = {}
        try:
            for group in self.groups:
                try:
                    lags.append(self._lag(group, failed))
                except (KafkaException, FutureTimeoutError) as error:
                    failed[group] = said_by_kafka(error) or NO_ANSWER
            known = {(lag.group, (p.topic, p.partition)) for lag in lags for p in lag.partitions}
            self._progress = {name: self._progress[name] for name in known & self._progress.keys()}
            asked.set_result((lags, failed))
        except Exception as error:  # raised again by `answer`
            asked.set_exception(error)

    def _lag(self, group: str, failed: dict[str, str]) -> ObservedGroup:
        offsets = list(committed_offsets(self.admin, group, TIMEOUT_S).items())[:MAX_PARTITIONS]
        asked_ms = self.clock()
        committed = {place: offset for place, offset in offsets if offset >= 0}
        ends = newest_offsets(self.admin, committed, TIMEOUT_S)
        behind = {place: committed[place] for place, end in ends.items() if committed[place] < end}
        records: dict[Place, Message | None] = dict.fromkeys(ends.keys() - behind.keys())
        try:
            first = sorted(behind, key=lambda place: (group, place) not in self._unread)
            records |= self.next_records.read({place: behind[place] for place in first}, TIMEOUT_S)
        except KafkaException as error:
            failed[group] = f"the record that it reads next: {said_by_kafka(error)}"
        self._unread -= {(group, place) for place in ends}
        self._unread |= {(group, place) for place in behind.keys() - records.keys()}
        members = self._members(group)
        partitions = []
        for place, end in sorted(ends.items()):
            progress = self._progress.setdefault((group, place), Progress())
            progress.add(asked_ms, committed[place], end)
            next_ms, behind_ms = _times(records, place, asked_ms)
            partitions.append(
                PartitionLag(
                    *place,
                    members.get(place, ""),
                    committed[place],
                    max(0, end - committed[place]),
                    next_ms,
                    behind_ms,
                    progress.catch_up_s(),
                )
            )
        return ObservedGroup(group, asked_ms, tuple(partitions))

    def _members(self, group: str) -> dict[Place, str]:
        """The member that each partition is assigned to; empty while the group rebalances, and for
        a group whose protocol the client cannot describe."""
        asked = self.admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S)
        try:
            members = asked[group].result(TIMEOUT_S).members
        except (KafkaException, FutureTimeoutError):
            return {}
        return {
            (place.topic, place.partition): member.member_id
            for member in members
            if member.assignment is not None
            for place in member.assignment.topic_partitions
        }


def _times(
    records: Mapping[Place, Message | None], place: Place, asked_ms: int
) -> tuple[int | None, int | None]:
    """Timestamp and age of the record that is read next; see `PartitionLag`."""
    if place not in records:
        return None, None
    record = records[place]
    if record is None:
        return None, 0
    kind, next_ms = record.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return None, None
    return next_ms, max(0, asked_ms - next_ms)
