"""Reads the bus and writes the projection: in order and exactly once, even if the process is
killed.

The order of writes makes it safe to end at any time. First the broker acknowledges the dead letters
about unusable records. Then the rows are inserted in offset order, then positions that no row
shows. Records not written are read again after a restart. A dead letter that was already published
is recognised by its topic, partition and offset.
"""

import math
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from prometheus_client import Counter, Gauge

from schemas.catalogue import CONCLUSIONS, DEAD_LETTER
from schemas.events import RecordsLost
from services.runtime.events import Events
from services.runtime.kafka import KAFKA_TIMEOUT_S, assigned_consumer, partition_ids, watermarks
from services.runtime.logs import get_log
from services.runtime.process import Clock, now_ms, return_arrow_memory
from services.store.engine import SqlEngine
from services.store.projection.inserting import (
    Inserter,
    Lost,
    Place,
    ProjectionError,
    Writer,
    kept_dead_letters,
    lost_before,
    read_positions,
    starts,
)
from services.store.settings import StoreSettings
from services.store.tables import TABLES

POLL_RECORDS: Final = 5_000
LOOK_S: Final = 0.25  # interval of checks whether to stop
CHECKPOINT_MS: Final = 600_000
RELEASE_MS: Final = 60_000
CATCH_UP_S: Final = 0.25  # maximum wait for more records per insert while catching up
LAG = Gauge("tidegauge_store_lag_records", "Records on the bus not projected yet", ["topic"])
LOST = Counter(
    "tidegauge_store_lost_records", "Records that retention removed before projection", ["topic"]
)
log = get_log()


class ResultsReader:
    """Reads with its own consumer. Not thread-safe."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def bounds(self) -> dict[Place, tuple[int, int]]:
        """First offset and end offset of every existing partition. Stops reading.

        Raises KafkaUnavailableError, KafkaException.
        """
        # A fetch waiting for records would delay each of these requests.
        self._consumer.unassign()
        return {
            place: watermarks(self._consumer, TopicPartition(*place)) for place in self._places()
        }

    def has_more_than(self, known: Container[Place]) -> bool:
        """Whether there are partitions other than the known ones. False if the broker is
        unreachable."""
        try:
            result = self._consumer.list_topics(timeout=KAFKA_TIMEOUT_S).topics
        except KafkaException:
            return False  # broker unreachable; the caller retries
        there = (
            (topic, n) for topic in TABLES if topic in result for n in result[topic].partitions
        )
        return any(place not in known for place in there)

    def behind(self, place: Place, offset: int) -> int:
        """Number of records of a partition after this offset, as of the last fetch."""
        _low, end = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
        return max(0, int(end) - offset)

    def first(self, place: Place) -> int:
        """Current first offset of a partition."""
        return watermarks(self._consumer, TopicPartition(*place))[0]

    def begin(self, offsets: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets."""
        self._consumer.assign([TopicPartition(*at, offset) for at, offset in offsets.items()])

    def poll(
        self, seconds: float, stopped: Callable[[], bool], most: int = POLL_RECORDS
    ) -> list[Message]:
        """Records that arrive within this time, in order within each partition. Returns earlier if
        `stopped`, at `most` records, and after a conclusion, because a report waits for it."""
        polled: list[Message] = []
        deadline_s = time.monotonic() + seconds
        while len(polled) < most and not stopped():
            left_s = deadline_s - time.monotonic()
            wait_s = max(0, min(left_s, LOOK_S))
            result = self._consumer.consume(most - len(polled), wait_s)
            polled += result
            if left_s <= LOOK_S or CONCLUSIONS in map(Message.topic, result):
                break
        return [message for message in polled if message.error() is None]

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _places(self) -> Iterator[Place]:
        for topic in TABLES:
            for partition in partition_ids(self._consumer, topic):
                yield topic, partition


class Projector:
    """Projects every topic of the results bus and the dead letters. Not thread-safe."""

    def __init__(
        self,
        engine: SqlEngine,
        bus: ResultsReader,
        events: Events,
        settings: StoreSettings,
        *,
        clock: Clock = now_ms,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._engine = engine
        self._bus = bus
        self._events = events
        self._settings = settings
        self._clock = clock
        self._next: dict[Place, int] = {}
        self._is_whole = False  # whether all partitions of the last discovery are being read
        self._inserter = Inserter(engine, settings, stopped)
        self._writer = Writer(self._inserter, events, clock, settings.batch_rows)
        self._limits: dict[Place, int] = {}
        self._replayed: dict[Place, int] = {}
        self._stopped = stopped
        self._checkpoint_ms = clock() + CHECKPOINT_MS
        self._release_ms = clock() + RELEASE_MS
        self._discover_ms = self._next_discovery_ms()

    def resume(self) -> None:
        """Continue where the projection ends.

        Dead letters are projected to their end first, so that none is published twice. Raises
        ProjectionError if the bus ends before the projection, KafkaUnavailableError.
        """
        bounds = self._bus.bounds()
        ends = {place: end for place, (_low, end) in bounds.items()}
        self._inserter.resume()
        self._begin(bounds, {place for place in bounds if place[0] == DEAD_LETTER})
        self._step_to(ends, self._stopped)
        bounds = self._bus.bounds()  # again: new dead letters may be projected too
        self._begin(bounds, set(bounds))
        kept = kept_dead_letters(self._engine, self._next, self._events.name)
        self._writer.kept = frozenset(kept)

    def replay(self, until: dict[Place, int], stopped: Callable[[], bool]) -> None:
        """Project the records before these offsets again, then continue as after `resume`.

        The tables must be empty, or contain what an earlier replay wrote. Dead letters are replayed
        to their end. Returns early once `stopped`.
        """
        self._limits = {place: at for place, at in until.items() if place[0] != DEAD_LETTER}
        self._replayed = until
        try:
            self.resume()
            self._step_to(self._limits, stopped)
        finally:
            self._limits, self._replayed = {}, {}
        self._begin(self._bus.bounds(), set(until))

    def positions(self) -> dict[Place, int]:
        """Next offset to project, by topic and partition."""
        return dict(self._next)

    def firsts(self) -> dict[Place, int]:
        """First offset that the bus still has, by topic and partition."""
        bounds = self._bus.bounds()
        self._bus.begin(self._next)
        return {place: low for place, (low, _end) in bounds.items()}

    def step(self) -> int:
        """Project the records that arrive within `batch_seconds`; returns their number."""
        return self._step(self._settings.batch_seconds)

    def close(self) -> None:
        """Close the consumer."""
        self._bus.close()

    def _step(self, seconds: float) -> int:
        messages = self._bus.poll(seconds, self._stopped)
        wanted = [m for m in messages if m.offset() < self._limit(m.topic(), m.partition())]
        for part in _parts(wanted, self._settings.batch_bytes):
            self._write(part)
        if not self._limits:
            self._tend()
        return len(wanted)

    def _tend(self) -> None:
        """Periodic work between batches: lag, checkpoints, discovery of partitions, memory."""
        self._tell_lag()
        if self._clock() >= self._checkpoint_ms:
            self._checkpoint()
        if self._clock() >= self._release_ms:
            self._release_ms = self._clock() + RELEASE_MS
            return_arrow_memory()
            self._engine.release_memory()
        if self._clock() >= self._discover_ms:
            self._discover_ms = self._next_discovery_ms()
            if self._is_whole and self._bus.has_more_than(self._next):
                bounds = self._bus.bounds()
                self._begin(bounds, set(bounds))

    def _checkpoint(self) -> None:
        """Record every position periodically, so that it outlasts expired rows."""
        self._inserter.write_positions(self._next, self._clock())
        self._checkpoint_ms = self._clock() + CHECKPOINT_MS

    def _next_discovery_ms(self) -> int:
        return self._clock() + int(self._settings.discover_seconds * 1000)

    def _tell_lag(self) -> None:
        behind = dict.fromkeys(TABLES, 0)
        for place, offset in self._next.items():
            behind[place[0]] += self._bus.behind(place, offset)
        for topic, records in behind.items():
            LAG.labels(topic).set(records)

    def _step_to(self, ends: dict[Place, int], stopped: Callable[[], bool]) -> None:
        def behind() -> bool:
            return any(at < ends.get(place, 0) for place, at in self._next.items())

        while behind() and not stopped():
            self._step(min(CATCH_UP_S, self._settings.batch_seconds))

    def _limit(self, topic: str, partition: int) -> float:
        return self._limits.get((topic, partition), math.inf)

    def _begin(self, bounds: dict[Place, tuple[int, int]], chosen: set[Place]) -> None:
        positions = read_positions(self._engine)
        try:
            begins = starts(positions, bounds)
        except ValueError as error:
            raise ProjectionError(str(error)) from error
        lost = lost_before(positions, {place: bounds[place][0] for place in chosen})
        self._tell_lost(lost)
        # Report them only once.
        self._inserter.write_positions({each.place: each.end for each in lost}, self._clock())
        self._next = {place: begins[place] for place in bounds if place in chosen}
        self._is_whole = chosen.issuperset(bounds)
        self._bus.begin(self._next)

    def _tell_lost(self, ranges: Iterable[Lost]) -> None:
        """Report records that are in no table. The rebuild reports those that had been projected
        before it."""
        for lost in ranges:
            if lost.end <= self._replayed.get(lost.place, 0):
                continue
            topic, partition = lost.place
            event = RecordsLost(
                topic=topic,
                partition=partition,
                records=lost.records,
                first_offset=lost.first,
                next_offset=lost.end,
            )
            log.warning("records_lost", **event.detail)
            LOST.labels(topic).inc(lost.records)
            self._events.publish(event)

    def _write(self, messages: Sequence[Message]) -> None:
        for topic, group in groupby(sorted(messages, key=Message.topic), key=Message.topic):
            result = list(group)
            self._advance(result)
            self._writer.write(topic, result)

    def _advance(self, messages: list[Message]) -> None:
        for message in messages:
            place = (message.topic(), message.partition())
            expected = self._next[place]
            if message.offset() < expected:
                raise ProjectionError(
                    f"{place[0]}/{place[1]} went back from offset {expected} to "
                    f"{message.offset()}: the topic was created again. Use another data folder."
                )
            if message.offset() > expected:  # the client skips deleted records silently
                gone = min(message.offset(), self._bus.first(place))
                self._tell_lost(lost_before({place: expected}, {place: gone}))
            self._next[place] = message.offset() + 1


def open_projector(
    settings: StoreSettings,
    engine: SqlEngine,
    events: Events,
    stopped: Callable[[], bool] = lambda: False,
) -> Projector:
    """A projector of the stack's bus. It reads nothing before `resume`, which returns early once
    `stopped`."""
    consumer = assigned_consumer(
        settings,
        "store",
        **{"fetch.wait.max.ms": 500, "queued.max.messages.kbytes": 32_768},
    )
    return Projector(engine, ResultsReader(consumer), events, settings, stopped=stopped)


def _parts(messages: Sequence[Message], max_bytes: int) -> Iterator[list[Message]]:
    part: list[Message] = []
    size = 0
    for message in messages:
        if part and size + len(message) > max_bytes:
            yield part
            part, size = [], 0
        part.append(message)
        size += len(message)
    if part:
        yield part
