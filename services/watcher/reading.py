"""Reads topics of somebody else's cluster and leaves no trace there: no group, no commit, no write.

The client asks for a group's coordinator of its own accord; a cluster may refuse that.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from schemas.watch import WatchedKafka
from services.runtime.clock import Clock, now_ms
from services.runtime.kafka import (
    KAFKA_TIMEOUT_S,
    KafkaUnavailableError,
    open_client_properties,
    partition_ids,
)
from services.runtime.settings import ServiceSettings
from services.watcher.records import NONE_MS
from services.watcher.troubles import Trouble

Place = tuple[str, int]
"""Topic and partition."""

# Small fetches keep a quiet topic cheap; what is fetched ahead has a bound.
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
LOOK_AGAIN_MS: Final = 10_000
MARGIN_MS: Final = 300  # how much later than it was stamped a record may be seen at the end
MOST_BEHIND_MS: Final = 5_000


@dataclass
class _State:
    """Of one partition: the next offset, the time of the last record, and its leader."""

    next: int
    read_ms: int = -1
    leader: int = -1
    is_held: bool = False


class BrokerClocks:
    """How far each leader's clock is behind this machine's, from the records themselves.

    A record is seen after it was stamped, so the least time between the two is that of the clocks
    and of the shortest way. Two brokers whose least times differ have clocks that differ.
    """

    def __init__(self) -> None:
        self._least_ms: dict[int, int] = {}

    def saw(self, messages: list[Message], places: dict[Place, _State], now: int) -> None:
        """Note the newest record of each leader in a batch."""
        if not messages:
            return
        last = messages[-1]
        state = places.get((last.topic(), last.partition()))
        if state is None or state.leader < 0:
            return
        took_ms = now - last.timestamp()[1]
        least_ms = self._least_ms.get(state.leader, took_ms)
        self._least_ms[state.leader] = min(least_ms, took_ms)

    def behind_ms(self) -> int:
        """How far the slowest of the clocks may be behind this machine's; 0 if ahead. What is read
        long after it was stamped says nothing of clocks."""
        return min(MOST_BEHIND_MS, max([0, *self._least_ms.values()]))

    def difference_ms(self) -> int | None:
        """How far the clocks of brokers are apart at most; None where there are not two."""
        found = self._least_ms.values()
        return max(found) - min(found) if len(found) > 1 else None

    def leaders(self) -> list[int]:
        """Brokers whose stamps were seen."""
        return sorted(self._least_ms)


@dataclass
class WatchReader:
    """Reads partitions of topics from given offsets on. One thread.

    positions: the next offset of every partition that is read. A partition that is new begins at
    its first record. troubles: what happened; whoever publishes it empties the list. is_full:
    whether too much has been read that waits for partitions that are behind; others are then held.
    """

    open_consumer: Callable[[], Consumer]
    admin: AdminClient
    topics: tuple[str, ...]
    clock: Clock = now_ms
    troubles: list[Trouble] = field(default_factory=list)
    clocks: BrokerClocks = field(default_factory=BrokerClocks)
    _places: dict[Place, _State] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    _stuck: set[Place] = field(default_factory=set)
    _looked_ms: int = 0
    is_full: bool = False

    def __post_init__(self) -> None:
        self.consumer = self.open_consumer()

    @property
    def positions(self) -> dict[Place, int]:
        """The next offset of every partition."""
        return {place: state.next for place, state in self._places.items()}

    def places(self) -> list[Place]:
        """Every partition of the topics. Raises KafkaException, NoTopicError."""
        return [
            (one, number) for one in self.topics for number in partition_ids(self.consumer, one)
        ]

    def ends(self) -> dict[Place, int]:
        """The end of every partition that is read. Raises KafkaUnavailableError."""
        found = self._ends()
        if found is None:
            raise KafkaUnavailableError("the watched cluster does not say where its topics end")
        return found

    def begin(self, positions: dict[Place, int]) -> None:
        """Read from these offsets on."""
        self._places = {place: _State(offset) for place, offset in positions.items()}
        self._assign()
        self._look(self.clock())

    def read(self, most: int, timeout_s: float) -> Iterator[tuple[str, list[Message]]]:
        """The next records, in stretches of one topic, which must have been taken over before more
        are asked for. Raises KafkaException for what does not pass."""
        for place in tuple(self._stuck):
            self._free(place)
        messages = self.consumer.consume(most, timeout_s)
        if any(map(Message.error, messages)):
            messages = [one for one in messages if one.error() is None or self._is_noted(one)]
        self.clocks.saw(messages, self._places, self.clock())
        for topic, stretch in groupby(messages, Message.topic):
            yield topic, list(stretch)

    def read_until(self, place: Place, offset: int, time_ms: int) -> None:
        """Note the last record of a partition that was taken over; NONE_MS where no time of those
        that were can be right."""
        state = self._places.get(place)
        if state is not None:
            state.next = offset + 1
            state.read_ms = state.read_ms if time_ms == NONE_MS else time_ms

    def frontier_ms(self) -> int | None:
        """Everything with an earlier time has been read; None where that is not known now.

        At the end of a partition it is the time of asking, less what a broker's clock is behind.
        """
        asked_ms = self.clock()
        if asked_ms - self._looked_ms >= LOOK_AGAIN_MS:
            self._look(asked_ms)
        ends = self._ends()
        if ends is None or not ends:
            return None
        behind_ms = MARGIN_MS + self.clocks.behind_ms()
        reached = []
        for place, end in ends.items():
            state = self._places[place]
            is_at_end = state.next >= end
            reached.append(asked_ms - behind_ms if is_at_end else state.read_ms)
        self._hold(min(reached))
        return min(reached)

    def _hold(self, frontier_ms: int) -> None:
        hold = {p for p, s in self._places.items() if self.is_full and s.read_ms > frontier_ms}
        now = [TopicPartition(*p) for p in hold if not self._places[p].is_held]
        free = [TopicPartition(*p) for p, s in self._places.items() if s.is_held and p not in hold]
        if now:
            self.consumer.pause(now)
        if free:
            self.consumer.resume(free)
        for place, state in self._places.items():
            state.is_held = place in hold

    def _ends(self) -> dict[Place, int] | None:
        """The end of every partition as a reader of committed records sees it."""
        asked = {TopicPartition(*place): OffsetSpec.latest() for place in self._places}
        if not asked:
            return {}
        try:
            futures = self.admin.list_offsets(
                asked,
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=KAFKA_TIMEOUT_S,
            )
        except KafkaException:
            return None
        found = {}
        for one, future in futures.items():
            try:
                found[one.topic, one.partition] = future.result(KAFKA_TIMEOUT_S).offset
            except KafkaException as error:
                if not _is_gone(error.args[0]):
                    return None
                self._looked_ms = 0  # look at once what has become of it
            except FutureTimeoutError:
                return None
        return found

    def _look(self, now: int) -> None:
        """See which partitions there are, and who leads them."""
        try:
            known = self.admin.list_topics(timeout=KAFKA_TIMEOUT_S).topics
        except KafkaException:
            return
        self._looked_ms = now
        changed = is_old = False
        for topic in self.topics:
            found = known.get(topic)
            if found is None or found.error is not None:
                changed |= self._lose(topic)
                continue
            back = topic in self._gone
            is_old |= back
            self._gone.discard(topic)
            for number, partition in sorted(found.partitions.items()):
                state = self._places.get((topic, number))
                if state is None:
                    state = self._places[topic, number] = _State(0)
                    changed = True
                    kind = "topic_appeared" if back else "partition_added"
                    self.troubles.append(Trouble(kind, {"topic": topic, "partition": number}))
                state.leader = partition.leader
        if is_old:
            # A client does not believe in leaders of an earlier epoch than it has seen, and those
            # of a topic of the same name begin anew.
            self.consumer.close()
            self.consumer = self.open_consumer()
        if changed:
            self._assign()

    def _lose(self, topic: str) -> bool:
        mine = [place for place in self._places if place[0] == topic]
        for place in mine:
            del self._places[place]
        if topic not in self._gone:
            self._gone.add(topic)
            self.troubles.append(Trouble("topic_deleted", {"topic": topic}))
        return bool(mine)

    def _assign(self) -> None:
        self.consumer.assign([TopicPartition(*p, state.next) for p, state in self._places.items()])
        for state in self._places.values():
            state.is_held = False

    def _is_noted(self, message: Message) -> bool:
        """Deal with a notice of the client; always False. Raises KafkaException for one that does
        not pass."""
        error = message.error()
        place = (message.topic(), message.partition())
        if error.code() == KafkaError._PARTITION_EOF:
            if place in self._places:
                self._places[place].next = max(self._places[place].next, message.offset())
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._stuck.add(place)  # what was read before may not have been taken over yet
        elif error.fatal():
            raise KafkaException(error)
        return False

    def _free(self, place: Place) -> None:
        """The next record of a partition is no longer there: go on with the first that is."""
        state = self._places.get(place)
        if state is None:
            self._stuck.discard(place)
            return
        try:
            low, high = self.consumer.get_watermark_offsets(TopicPartition(*place), KAFKA_TIMEOUT_S)
        except KafkaException:
            return  # asked again before the next records
        self._stuck.discard(place)
        is_new = high < state.next
        kind = "topic_appeared" if is_new else "retention_overtook"
        lost = {} if is_new else {"records": low - state.next}
        where = {"topic": place[0], "partition": place[1]}
        told = where | lost | {"first_offset": state.next, "next_offset": low}
        self.troubles.append(Trouble(kind, told))
        state.next, state.is_held = low, False
        # A partition that has failed cannot be sought in.
        self.consumer.incremental_unassign([TopicPartition(*place)])
        self.consumer.incremental_assign([TopicPartition(*place, low)])


def offsets_at(consumer: Consumer, places: Iterable[Place], time_ms: int) -> dict[Place, int]:
    """The offset of the first record of each partition at or after a time; the end without one.
    Raises KafkaException."""
    asked = [TopicPartition(*place, time_ms) for place in places]
    found = consumer.offsets_for_times(asked, KAFKA_TIMEOUT_S) if asked else []
    return {(one.topic, one.partition): _offset(consumer, one) for one in found}


def _offset(consumer: Consumer, place: TopicPartition) -> int:
    if place.offset >= 0:
        return int(place.offset)
    return int(consumer.get_watermark_offsets(place, KAFKA_TIMEOUT_S)[1])


def first_offsets(consumer: Consumer, places: Iterable[Place]) -> dict[Place, int]:
    """The first offset of each partition. Raises KafkaException."""
    return {
        place: int(consumer.get_watermark_offsets(TopicPartition(*place), KAFKA_TIMEOUT_S)[0])
        for place in places
    }


def _is_gone(error: KafkaError) -> bool:
    codes = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
    return error.code() in (*codes, KafkaError._UNKNOWN_PARTITION)


def client_properties(kafka: WatchedKafka, name: str, settings: ServiceSettings) -> dict[str, Any]:
    """librdkafka properties of the clients of a watch."""
    if not kafka.bootstrap:
        return open_client_properties(settings, f"watch-{name}") | kafka.properties
    return {
        "bootstrap.servers": kafka.bootstrap,
        "client.id": f"tidegauge-watch-{name}",
        "log_level": 3,
        **kafka.properties,
    }
