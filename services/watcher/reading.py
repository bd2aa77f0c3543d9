"""Reads topics of a foreign cluster without side effects: no group, no commits, no writes.

The client looks up a group coordinator on its own; a cluster may refuse that. The transactions of
outputs are read by a second client. If this one cannot read them, the watch goes on without.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import numpy as np
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from services.runtime.counting import Ints, by_value
from services.runtime.kafka import (
    KAFKA_TIMEOUT_S,
    KafkaUnavailableError,
    Place,
    partition_ids,
    said_by_kafka,
)
from services.runtime.logs import get_log
from services.runtime.process import Clock, now_ms
from services.runtime.record_batches import BatchFormatError
from services.runtime.transactions import UNKNOWN_MS, CommitReader, TransactionsLostError
from services.watcher.cluster import BrokerClocks, bounds_of, offsets_at
from services.watcher.records import NONE_MS
from services.watcher.troubles import NotReadable, Trouble

# Small fetches keep idle topics cheap; prefetching is bounded.
READING: Final[dict[str, Any]] = {
    "group.id": "tidegauge-watch",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
    "enable.partition.eof": True,
    "fetch.min.bytes": 65_536,
    "fetch.wait.max.ms": 200,
    "fetch.queue.backoff.ms": 20,
    "max.partition.fetch.bytes": 131_072,
    "queued.min.messages": 4_000,
    "queued.max.messages.kbytes": 8_192,
}
CLEANUP: Final = "cleanup.policy"
LOOK_AGAIN_MS: Final = 10_000
FRESH_MS: Final = 2_000
MOST_NOTED: Final = 500  # records of a batch whose delay may be noted, about
MARGIN_MS: Final = 300  # assumed maximum delay from timestamp to visibility at the end
log = get_log()


@dataclass
class ReadPartition:
    """One partition being read.

    next: the next offset, in the topic with topic_id. read_ms: everything earlier has been read.
    newest_ms: time of the newest record, also if its producer's clock is ahead. end, end_ms: the
    high watermark at an earlier time. asked_ms: when it was asked for, until the next record is
    read. asked_before: that record's time, and when the end before it was asked for, until a record
    of a later batch is read. is_held: whether it is paused. is_stuck: whether its next offset does
    not exist. lost: a problem that concerns records before the next one.
    """

    next: int
    topic_id: str = ""
    read_ms: int = -1
    newest_ms: int = -1
    end: int = 0
    end_ms: int = -1
    asked_ms: int = -1
    asked_before: tuple[int, int] | None = None
    leader: int = -1
    is_held: bool = False
    is_stuck: bool = False
    lost: Trouble | None = None

    @property
    def latest_ms(self) -> int:
        """The latest time that was reached."""
        return max(self.read_ms, self.newest_ms)

    def read_until(self, offset: int, time_ms: int, newest_ms: int) -> None:
        """Note the last processed record, the time up to which these records say that everything
        has been read, and their newest time; NONE_MS if none of their times is valid."""
        self.next = max(self.next, offset + 1)  # the notice of the end may come first
        if time_ms != NONE_MS:
            self.read_ms = time_ms
        if newest_ms == NONE_MS:
            return
        self.newest_ms = newest_ms
        if self.lost is not None:
            self.lost.until_ms = min(self.lost.until_ms, newest_ms)
            self.lost = None

    def reached(self, end: int, end_ms: int) -> int:
        """The time up to which it is read, given its high watermark at a time."""
        if self.is_stuck:
            return self.read_ms
        if self.next >= self.end:
            self.read_ms = max(self.read_ms, self.end_ms)
        self.end, self.end_ms = end, end_ms
        if self.next >= end:
            return end_ms
        return min(self.latest_ms, end_ms) if self.is_held else self.read_ms


@dataclass
class WatchReader:
    """Reads partitions of topics from given offsets on. One thread.

    positions: the next offset of every partition being read. A new partition starts at its first
    record; one of a topic that reappears resumes, unless the topic was recreated. troubles: what
    happened; the publisher clears the list. is_full: whether too many records wait for partitions
    that are behind; other partitions are then paused. commits: reads the transactions of `outputs`,
    topics; None if they cannot be read. bounds_clocks: whether to note what bounds the offset of
    the brokers' clocks from below.
    """

    open_consumer: Callable[[], Consumer]
    admin: AdminClient
    topics: tuple[str, ...]
    clock: Clock = now_ms
    outputs: tuple[str, ...] = ()
    commits: CommitReader | None = None
    troubles: list[Trouble] = field(default_factory=list)
    clocks: BrokerClocks = field(default_factory=BrokerClocks)
    _places: dict[Place, ReadPartition] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    _left: dict[Place, ReadPartition] = field(default_factory=dict)  # of deleted topics
    _ids: dict[str, str] = field(default_factory=dict)
    _not_readable: NotReadable = field(default_factory=NotReadable)
    _looked_ms: int = 0
    is_full: bool = False
    bounds_clocks: bool = False

    def __post_init__(self) -> None:
        self.consumer = self.open_consumer()

    @property
    def positions(self) -> dict[Place, int]:
        """The next offset of every partition."""
        return {place: state.next for place, state in self._places.items()}

    @property
    def kept(self) -> dict[Place, int]:
        """Offsets to resume at: the positions, and those of deleted topics."""
        return {place: state.next for place, state in (self._left | self._places).items()}

    def places(self) -> list[Place]:
        """Every partition of the topics. Raises KafkaException, NoTopicError."""
        return [
            (topic, number)
            for topic in self.topics
            for number in partition_ids(self.consumer, topic)
        ]

    def bounds(self, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
        """The first offset of each partition, and the next one. Raises KafkaException."""
        return bounds_of(self.consumer, places)

    def offsets_at(self, places: Iterable[Place], time_ms: int) -> dict[Place, int]:
        """The offset of the first record of each partition at or after a time, or the end offset.
        Raises KafkaException."""
        return offsets_at(self.consumer, places, time_ms)

    def leaders(self) -> list[int]:
        """Brokers whose timestamps were seen."""
        return self.clocks.leaders()

    def difference_ms(self) -> int | None:
        """Maximum clock difference between brokers; None if unknown."""
        return self.clocks.difference_ms()

    def apart_ms(self) -> tuple[int, int] | None:
        """There is no other cluster."""
        return None

    def ends(self) -> dict[Place, int]:
        """Last stable offset of every partition being read: all records that can have been read are
        before it. Raises KafkaUnavailableError."""
        result = self._ends(IsolationLevel.READ_COMMITTED)
        if result is None:
            raise KafkaUnavailableError("the watched cluster returns no end offsets")
        return result

    def compacted(self) -> frozenset[str]:
        """The topics whose records may be removed by compaction, as far as the cluster says so."""
        asked = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in self.topics]
        result = set()
        futures = self.admin.describe_configs(asked, request_timeout=KAFKA_TIMEOUT_S)
        for each, future in futures.items():
            try:
                policy = future.result(KAFKA_TIMEOUT_S)[CLEANUP].value
            except (KafkaException, FutureTimeoutError, KeyError) as error:
                log.warning("policy_unknown", topic=each.name, reason=said_by_kafka(error))
                continue
            result |= {each.name} if "compact" in policy else set()
        return frozenset(result)

    def saved_topics(self) -> dict[str, Any]:
        """Ids of the topics, those that are deleted, and transactions, for `begin`."""
        transactions = [] if self.commits is None else self.commits.saved()
        return {"ids": self._ids, "gone": sorted(self._gone), "transactions": transactions}

    def begin(self, positions: dict[Place, int], topics: dict[str, Any] | None = None) -> None:
        """Start reading at these offsets, which are those of `saved_topics` if given."""
        if topics is not None:
            self._ids, self._gone = dict(topics["ids"]), set(topics["gone"])
        for place, offset in positions.items():
            side = self._left if place[0] in self._gone else self._places
            side[place] = ReadPartition(offset, self._ids.get(place[0], ""))
            self._begin_commits(place, offset)
        if self.commits is not None and topics is not None:
            self.commits.restore(topics.get("transactions", []))
        self._assign()
        now = self.clock()
        self._not_readable.answered(now)
        self._look(now)

    def read(self, most: int, timeout_s: float) -> Iterator[tuple[str, list[Message]]]:
        """The next records in batches of one topic; a batch must be processed before the next is
        requested. Raises KafkaException for permanent errors, KafkaUnavailableError."""
        for place, state in self._places.items():
            if state.is_stuck:
                self._free(place, state)
        messages = self.consumer.consume(most, timeout_s)
        if any(map(Message.error, messages)):
            messages = [
                message
                for message in messages
                if message.error() is None or self._is_noted(message)
            ]
        now = self.clock()
        self._read_commits(messages)
        for topic, stretch in groupby(messages, Message.topic):
            batch = list(stretch)
            noted = [*batch[:: max(1, len(batch) // MOST_NOTED)], batch[-1]]
            for last in dict(zip(map(Message.partition, noted), noted, strict=True)).values():
                self._saw(last, now)
            if self.bounds_clocks:
                self._bound_clocks(batch)
            yield topic, batch

    def visible_ms(self, topic: str, messages: list[Message]) -> Ints:
        """When consumers of committed records could have each of these records of a topic, which
        the last `read` has returned; NONE_MS where that is unknown, as in partitions without
        transactions."""
        result = np.full(len(messages), NONE_MS, np.int64)
        if self.commits is None or topic not in self.outputs:
            return result
        partitions = np.fromiter(map(Message.partition, messages), np.int64, len(messages))
        offsets = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
        for partition, rows in by_value(partitions):
            if self.commits.has_transactions((topic, partition)):
                times = self.commits.visible_ms((topic, partition), offsets[rows])
                result[rows] = np.where(times == UNKNOWN_MS, NONE_MS, times)
        return result

    def take_aborted(self) -> dict[str, Counter[int]]:
        """Records of aborted transactions by topic and second (epoch ms), since the last call."""
        return {} if self.commits is None else self.commits.take_aborted()

    def close(self) -> None:
        """Close the clients."""
        self.consumer.close()
        if self.commits is not None:
            self.commits.close()

    def _begin_commits(self, place: Place, offset: int) -> None:
        if self.commits is not None and place[0] in self.outputs:
            self.commits.begin(place, offset)

    def _read_commits(self, messages: list[Message]) -> None:
        """Read the transactions up to these records. Raises KafkaUnavailableError, so that the next
        process reads them again from the saved position, unless they were never read."""
        if self.commits is None:
            return
        passed = {p: state.next for p, state in self._places.items() if p[0] in self.outputs}
        places = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
        for place, last in dict(zip(places, map(Message.offset, messages), strict=True)).items():
            if place in passed:
                passed[place] = max(passed[place], last + 1)
        while True:
            try:
                self.commits.read_to(passed)
                return
            except TransactionsLostError as error:
                for place in error.places:
                    self.commits.begin(place, passed[place])
                self._tell_unknown(error)
            except (BatchFormatError, KafkaUnavailableError) as error:
                if isinstance(error, KafkaUnavailableError) and self.commits.has_read:
                    raise
                self._tell_unknown(error)
                self.commits.close()
                self.commits = None
                return

    def _tell_unknown(self, error: Exception) -> None:
        """Report that it is unknown when some records became visible."""
        self.troubles.append(Trouble("transactions_unknown", {"reason": str(error)}))

    def _saw(self, message: Message, now: int) -> None:
        """Note the delay of a record. It is fresh if it was appended after the latest query of the
        ends, and that was shortly before."""
        state = self._places.get((message.topic(), message.partition()))
        kind, time_ms = message.timestamp()
        if state is None or state.leader < 0:
            return
        asked_ms = state.end_ms + MARGIN_MS + self.clocks.behind_ms()
        is_fresh = message.offset() >= state.end and now - asked_ms <= FRESH_MS
        self.clocks.saw(state.leader, time_ms, now, kind == TIMESTAMP_LOG_APPEND_TIME, is_fresh)

    def _bound_clocks(self, batch: list[Message]) -> None:
        """Note the first record of the second batch of each partition after the latest query of its
        end. The first batch may have been stamped before the query: an append is seen at the end
        only when it is over. Appends to a partition follow one another."""
        waiting = {
            place[1]: state
            for place, state in self._places.items()
            if place[0] == batch[0].topic() and (state.asked_ms >= 0 or state.asked_before)
        }
        for message in batch if waiting else ():
            state = waiting.get(message.partition())
            if state is None:
                continue
            kind, time_ms = message.timestamp()
            if state.asked_before is not None and time_ms != state.asked_before[0]:
                if kind == TIMESTAMP_LOG_APPEND_TIME and state.leader >= 0:
                    self.clocks.appended_after(state.leader, time_ms, state.asked_before[1])
                state.asked_before = None
            if state.asked_ms >= 0 and message.offset() >= state.end:
                state.asked_before = time_ms, state.asked_ms
                state.asked_ms = -1
            elif state.asked_ms < 0 and state.asked_before is None:
                del waiting[message.partition()]

    def read_until(self, place: Place, offset: int, time_ms: int, newest_ms: int) -> None:
        """Note the last processed record of a partition; see Partition."""
        state = self._places.get(place)
        if state is not None:
            state.read_until(offset, time_ms, newest_ms)

    def frontier_ms(self) -> int | None:
        """As `reached_ms`. Partitions that are ahead of it are held."""
        result = self.reached_ms()
        self.hold(result)
        return result

    def reached_ms(self) -> int | None:
        """All records with an earlier time have been read; None if unknown at the moment.

        At the end of a partition it is the time of the query minus the broker's clock offset. This
        end is the high watermark, so records of an open transaction, which cannot be read yet, are
        before it.
        """
        asked_ms = self.clock()
        if asked_ms - self._looked_ms >= LOOK_AGAIN_MS:
            self._look(asked_ms)
        ends = self._ends(IsolationLevel.READ_UNCOMMITTED)
        if ends is None:
            self.troubles += self._not_readable.silent(asked_ms)
            return None
        self._not_readable.answered(asked_ms)
        if not ends:
            return None
        end_ms = asked_ms - MARGIN_MS - self.clocks.behind_ms()
        for place in ends:
            self._places[place].asked_ms = asked_ms
        return min(self._places[place].reached(end, end_ms) for place, end in ends.items())

    def hold(self, reached_ms: int | None) -> None:
        """Pause partitions that are ahead of a time, of all if it is None, while too many records
        wait; resume others."""
        frontier_ms = NONE_MS if reached_ms is None else reached_ms
        hold = {p for p, s in self._places.items() if self.is_full and s.latest_ms > frontier_ms}
        now = [TopicPartition(*p) for p in hold if not self._places[p].is_held]
        free = [TopicPartition(*p) for p, s in self._places.items() if s.is_held and p not in hold]
        if now:
            self.consumer.pause(now)
        if free:
            self.consumer.resume(free)
        for place, state in self._places.items():
            state.is_held = place in hold

    def _ends(self, level: IsolationLevel) -> dict[Place, int] | None:
        """End offset of every partition at an isolation level."""
        asked = {TopicPartition(*place): OffsetSpec.latest() for place in self._places}
        if not asked:
            return {}
        try:
            futures = self.admin.list_offsets(
                asked, isolation_level=level, request_timeout=KAFKA_TIMEOUT_S
            )
        except KafkaException as error:
            self._not_readable.reason = said_by_kafka(error)
            return None
        result = {}
        for each, future in futures.items():
            try:
                result[each.topic, each.partition] = future.result(KAFKA_TIMEOUT_S).offset
            except KafkaException as error:
                if not _is_gone(error.args[0]):
                    self._not_readable.reason = said_by_kafka(error)
                    self.troubles += self._not_readable.refused(each.topic, error.args[0])
                    return None
                self._looked_ms = 0  # check the topic immediately
            except FutureTimeoutError:
                self._not_readable.reason = "it does not answer"
                return None
        return result

    def _look(self, now: int) -> None:
        """Update partitions and leaders."""
        try:
            asked = {topic: self._description(topic) for topic in self.topics}
        except KafkaException:
            return
        self._looked_ms = now
        changed = is_old = False
        for topic, answer in asked.items():
            try:
                result = answer.result(KAFKA_TIMEOUT_S)
            except KafkaException as error:
                self.troubles += self._not_readable.refused(topic, error.args[0])
                changed |= _is_gone(error.args[0]) and self._lose(topic)
                continue
            except FutureTimeoutError:
                continue
            back = self._is_back(topic, str(result.topic_id))
            is_old |= back
            for partition in result.partitions:
                place = (topic, partition.id)
                state = self._places.get(place)
                if state is None:
                    if place not in self._left:
                        self._begin_commits(place, 0)
                    state = self._places[place] = self._left.pop(place, ReadPartition(0))
                    changed = True
                    kind = "topic_appeared" if back else "partition_added"
                    self.troubles.append(Trouble(kind, {"topic": topic, "partition": place[1]}))
                state.topic_id = state.topic_id or str(result.topic_id)
                state.leader = partition.leader.id if partition.leader else -1
        if is_old:
            # A client ignores leader epochs lower than it has seen, and those of a recreated topic
            # start again.
            self.consumer.close()
            self.consumer = self.open_consumer()
        if changed:
            self._assign()

    def _description(self, topic: str) -> "Future[Any]":
        asked = TopicCollection([topic])
        answers: dict[str, Future[Any]] = self.admin.describe_topics(
            asked, request_timeout=KAFKA_TIMEOUT_S
        )
        return answers[topic]

    def _is_back(self, topic: str, id_: str) -> bool:
        """Whether a topic had been deleted. Offsets of a recreated topic are unknown. If it was
        recreated before its deletion was noticed, reading continues: where its records begin is not
        known."""
        back = topic in self._gone
        if back and self._ids.get(topic, id_) != id_:
            self._left = {each: left for each, left in self._left.items() if each[0] != topic}
        elif self._ids.get(topic, id_) != id_:
            self._tell_deleted(topic)
            for place in [each for each in self._places if each[0] == topic]:
                self._begin_commits(place, self._places[place].next)
        self._gone.discard(topic)
        self._ids[topic] = id_
        return back

    def _lose(self, topic: str) -> bool:
        mine = [place for place in self._places if place[0] == topic]
        for place in mine:
            self._left[place] = self._places.pop(place)
        if topic not in self._gone:
            self._gone.add(topic)
            self._tell_deleted(topic)
        return bool(mine)

    def _tell_deleted(self, topic: str) -> None:
        self.troubles.append(Trouble("topic_deleted", {"topic": topic}, self.clock()))

    def _assign(self) -> None:
        self._resume(self._left | self._places)
        self.consumer.assign([TopicPartition(*p, state.next) for p, state in self._places.items()])

    def _resume(self, states: dict[Place, ReadPartition]) -> None:
        """Resume partitions before they are assigned again: the client keeps them paused."""
        held = {place: state for place, state in states.items() if state.is_held}
        if held:
            self.consumer.resume([TopicPartition(*place) for place in held])
        for state in held.values():
            state.is_held = False

    def _is_noted(self, message: Message) -> bool:
        """Handle an error message of the client; always False. Raises KafkaException for permanent
        errors."""
        error = message.error()
        place = (message.topic(), message.partition())
        if error.code() == KafkaError._PARTITION_EOF:
            if place in self._places:
                self._places[place].next = max(self._places[place].next, message.offset())
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            if place in self._places:  # records read before may not be processed yet
                self._places[place].is_stuck = True
        elif error.fatal():
            raise KafkaException(error)
        else:
            self.troubles += self._not_readable.refused(message.topic() or "", error)
        return False

    def _free(self, place: Place, state: ReadPartition) -> None:
        """The next offset of a partition does not exist: continue at the nearest one, or at the
        first one of another topic of that name."""
        try:
            low, high = self.consumer.get_watermark_offsets(TopicPartition(*place), KAFKA_TIMEOUT_S)
            topic_id = str(self._description(place[0]).result(KAFKA_TIMEOUT_S).topic_id)
        except (KafkaException, FutureTimeoutError):
            return  # retried before the next records
        detail = {"topic": place[0], "partition": place[1], "first_offset": state.next}
        kind, offset = "", min(max(state.next, low), high)
        if state.next > high and state.topic_id not in ("", topic_id):
            kind, offset = "topic_appeared", low
        elif state.next > high:
            kind = "truncated"
        elif state.next < low:
            kind = "retention_overtook"
            detail["records"] = low - state.next
        if kind:
            state.lost = Trouble(kind, detail | {"next_offset": offset}, self.clock())
            self.troubles.append(state.lost)
            self._begin_commits(place, offset)
        state.next, state.topic_id, state.is_stuck = offset, topic_id, False
        self._resume({place: state})
        # A failed partition does not support seek.
        self.consumer.incremental_unassign([TopicPartition(*place)])
        self.consumer.incremental_assign([TopicPartition(*place, offset)])


def _is_gone(error: KafkaError) -> bool:
    codes = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
    return error.code() in (*codes, KafkaError._UNKNOWN_PARTITION)
