"""The clusters of a watch as one: a topic or a group of another cluster than the first has the name
`CLUSTER:NAME` everywhere but in requests to it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException, Message

from schemas.watch import Watch, own_name
from services.runtime.counting import Ints
from services.runtime.kafka import KafkaUnavailableError, Place, said_by_kafka
from services.watcher.group_lag import GroupLagReader, ObservedGroup
from services.watcher.reading import WatchReader
from services.watcher.troubles import Trouble

T = TypeVar("T")
Span = tuple[int, int]
HERE: Final = (0, 0)


def offsets_apart(first: Span | None, other: Span | None) -> Span | None:
    """How far the clocks of another cluster are behind those of the first, at least and at most,
    ms, from the spans in which both are behind this machine's; None if one is unknown."""
    if first is None or other is None:
        return None
    return other[0] - first[1], other[1] - first[0]


def latency_error(watch: Watch, stage: int, apart: Span | None) -> Span | None:
    """What may have to be added to the latencies of a stage, at least and at most, ms, because its
    topics have the clocks of two clusters; None if that is unknown. stage: its number among
    `watch.stages`. apart: of `offsets_apart`."""
    part = watch.of_hop(watch.hops[stage - 1]) if stage else watch
    ways = {
        (watch.cluster_of(begin.topic), watch.cluster_of(end.topic))
        for begin in part.inputs
        for end in part.outputs
    }
    crossing = {bool(end) for begin, end in ways if begin != end}  # whether to the other one
    if not crossing:
        return HERE
    if apart is None:
        return None
    spans = [apart if there else (-apart[1], -apart[0]) for there in crossing]
    spans += [HERE] if any(begin == end for begin, end in ways) else []
    return min(low for low, _ in spans), max(high for _, high in spans)


def said_of_clusters(watch: Watch, apart: Span | None) -> str:
    """How the clocks of two clusters differ, in a sentence; empty with one cluster."""
    for other in watch.clusters:
        if apart is None:
            return (
                f"The difference between the clocks of the cluster {other} and of the first one is"
                " unknown: latencies between them have that error."
            )
        return (
            f"The clocks of the cluster {other} are {apart[0]} to {apart[1]} ms behind those of the"
            " first one: latencies to it are too short by that, latencies from it too long."
        )
    return ""


@dataclass
class ClusterReaders:
    """Reads the topics of several clusters as `WatchReader` does those of one. readers: by the name
    of the cluster, empty for the first."""

    readers: dict[str, WatchReader]
    troubles: list[Trouble] = field(default_factory=list)

    def __post_init__(self) -> None:
        for reader in self.readers.values():
            reader.bounds_clocks = True

    @property
    def is_full(self) -> bool:
        """As of `WatchReader`."""
        return any(reader.is_full for reader in self.readers.values())

    @is_full.setter
    def is_full(self, is_full: bool) -> None:
        for reader in self.readers.values():
            reader.is_full = is_full

    @property
    def positions(self) -> dict[Place, int]:
        """The next offset of every partition."""
        return self._joined({name: each.positions for name, each in self.readers.items()})

    @property
    def kept(self) -> dict[Place, int]:
        """Offsets to resume at."""
        return self._joined({name: each.kept for name, each in self.readers.items()})

    def places(self) -> list[Place]:
        """Every partition. Raises KafkaUnavailableError with the name of the cluster."""
        result = []
        for name, reader in self.readers.items():
            try:
                result += [(own_name(name, topic), part) for topic, part in reader.places()]
            except (KafkaException, KafkaUnavailableError) as error:
                which = f"the cluster {name}" if name else "the first cluster"
                raise KafkaUnavailableError(f"{which}: {said_by_kafka(error)}") from error
        return result

    def bounds(self, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
        """As of `WatchReader`."""
        of = self._split(dict.fromkeys(places))
        return self._joined({name: each.bounds(of[name]) for name, each in self.readers.items()})

    def offsets_at(self, places: Iterable[Place], time_ms: int) -> dict[Place, int]:
        """As of `WatchReader`."""
        of = self._split(dict.fromkeys(places))
        return self._joined(
            {name: each.offsets_at(of[name], time_ms) for name, each in self.readers.items()}
        )

    def ends(self) -> dict[Place, int]:
        """As of `WatchReader`."""
        return self._joined({name: each.ends() for name, each in self.readers.items()})

    def compacted(self) -> frozenset[str]:
        """As of `WatchReader`."""
        return frozenset(
            own_name(name, topic)
            for name, reader in self.readers.items()
            for topic in reader.compacted()
        )

    def saved_topics(self) -> dict[str, Any]:
        """What `begin` needs, by cluster."""
        return {name: reader.saved_topics() for name, reader in self.readers.items()}

    def begin(self, positions: dict[Place, int], topics: dict[str, Any] | None = None) -> None:
        """As of `WatchReader`."""
        of = self._split(positions)
        for name, reader in self.readers.items():
            reader.begin(of[name], None if topics is None else topics[name])

    def read(self, most: int, timeout_s: float) -> Iterator[tuple[str, list[Message]]]:
        """As of `WatchReader`, in turn."""
        for name, reader in self.readers.items():
            for topic, messages in reader.read(most, timeout_s / len(self.readers)):
                yield own_name(name, topic), messages

    def visible_ms(self, topic: str, messages: list[Message]) -> Ints:
        """As of `WatchReader`."""
        name, there = self._at(topic)
        return self.readers[name].visible_ms(there, messages)

    def read_until(self, place: Place, offset: int, time_ms: int, newest_ms: int) -> None:
        """As of `WatchReader`."""
        name, there = self._at(place[0])
        self.readers[name].read_until((there, place[1]), offset, time_ms, newest_ms)

    def take_aborted(self) -> dict[str, Counter[int]]:
        """As of `WatchReader`."""
        return self._named({name: each.take_aborted() for name, each in self.readers.items()})

    def frontier_ms(self) -> int | None:
        """The earliest one of all clusters, up to which all of them are read; None if that of any
        is unknown. What is ahead of it is held in each cluster."""
        reached = [reader.reached_ms() for reader in self.readers.values()]
        known = [each for each in reached if each is not None]
        result = min(known) if len(known) == len(reached) else None
        for name, reader in self.readers.items():
            reader.hold(result)
            for trouble in reader.troubles:
                if "topic" in trouble.detail:
                    trouble.detail["topic"] = own_name(name, trouble.detail["topic"])
                elif name and "reason" in trouble.detail:
                    trouble.detail["reason"] = f"cluster {name}: {trouble.detail['reason']}"
            self.troubles += reader.troubles
            reader.troubles = []
        return result

    def leaders(self) -> list[int]:
        """Brokers whose timestamps were seen, of all clusters."""
        return [each for reader in self.readers.values() for each in reader.leaders()]

    def difference_ms(self) -> int | None:
        """The largest difference between clocks within a cluster; None if none is known."""
        within = [reader.difference_ms() for reader in self.readers.values()]
        return max((each for each in within if each is not None), default=None)

    def apart_ms(self) -> Span | None:
        """See `offsets_apart`."""
        first, other = (reader.clocks.behind_span_ms() for reader in self.readers.values())
        return offsets_apart(first, other)

    def close(self) -> None:
        """Close the clients."""
        for reader in self.readers.values():
            reader.close()

    def _at(self, topic: str) -> tuple[str, str]:
        """The cluster of a topic, and its name there."""
        name, _, there = topic.rpartition(":")
        return name, there

    def _split(self, of: Mapping[Place, T]) -> dict[str, dict[Place, T]]:
        result: dict[str, dict[Place, T]] = {name: {} for name in self.readers}
        for (topic, part), value in of.items():
            name, there = self._at(topic)
            result[name][there, part] = value
        return result

    def _joined(self, of: Mapping[str, Mapping[Place, T]]) -> dict[Place, T]:
        return {
            (own_name(name, topic), part): value
            for name, each in of.items()
            for (topic, part), value in each.items()
        }

    def _named(self, of: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
        return {
            own_name(name, topic): value
            for name, each in of.items()
            for topic, value in each.items()
        }


@dataclass
class ClusterLags:
    """Lag of the groups of several clusters, as `GroupLagReader` has that of one."""

    readers: dict[str, GroupLagReader]

    @property
    def troubles(self) -> list[Trouble]:
        """Groups that could not be read, with the name of the cluster."""
        return [
            replace(each, detail=each.detail | {"group": own_name(name, each.detail["group"])})
            for name, reader in self.readers.items()
            for each in reader.troubles
        ]

    @troubles.setter
    def troubles(self, troubles: list[Trouble]) -> None:
        for reader in self.readers.values():
            reader.troubles = [*troubles]

    def ask(self) -> None:
        """As of `GroupLagReader`."""
        for reader in self.readers.values():
            reader.ask()

    def answer(self) -> list[ObservedGroup]:
        """As of `GroupLagReader`."""
        return [
            ObservedGroup(
                own_name(name, lag.group),
                lag.asked_ms,
                tuple(replace(p, topic=own_name(name, p.topic)) for p in lag.partitions),
            )
            for name, reader in self.readers.items()
            for lag in reader.answer()
        ]


TopicsReader = WatchReader | ClusterReaders
LagReader = GroupLagReader | ClusterLags
