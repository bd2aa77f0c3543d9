"""Saved position of a watch, so that a killed process loses nothing and counts nothing twice.

The file contains the remembered state, the offsets up to which it was read, and the end offsets of
the bus when all of it had been published. The next process counts records after these offsets again
and publishes the difference to what is on the bus after these ends.
"""

import hashlib
import json
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer

from schemas import catalogue
from schemas.events import Concluded, PhaseStarted, WatchBegun
from schemas.watch import Cluster, Watch, WatchedKafka
from services.runtime.counting import COUNTED, CountReconciler
from services.runtime.events import decoded, read_spans
from services.runtime.files import write_parts
from services.runtime.kafka import assigned_consumer, ends_of
from services.runtime.settings import ServiceSettings

SUMMED: Final = (*COUNTED, catalogue.SLICES)
PUBLISHED: Final = (*SUMMED, catalogue.LIFECYCLE, catalogue.CONCLUSIONS)
VERSION: Final = 2
READABLE: Final = (1, VERSION)  # in the first, groups are numbers without bases
# Settings of topics that releases up to 0.1.0 do not have.
SINCE_0_1_0: Final = (
    "where",
    "key_schemas",
    "key_message",
    "key_window",
    "window_ms",
    "separator",
)
Arrays = dict[str, npt.NDArray[Any]]
Saved = tuple[Arrays, dict[str, Any]]


def digest(watch: Watch) -> str:
    """Digest of what a position depends on: a watch with other topics or rules starts anew. A login
    and thresholds may change."""
    anonymous = watch.model_copy(update={"kafka": WatchedKafka(bootstrap=watch.kafka.bootstrap)})
    others = {
        name: Cluster(kafka=WatchedKafka(bootstrap=each.kafka.bootstrap))
        for name, each in watch.clusters.items()
    }
    anonymous = anonymous.model_copy(update={"clusters": others})
    omitted = {"summary", "registry", "groups", "thresholds"}
    if not watch.hops:  # in releases up to 0.1.0 there are none
        omitted |= {"through", "hops"}
    if not watch.clusters:
        omitted |= {"clusters"}
    fields = anonymous.model_dump(mode="json", exclude=omitted)
    for side in (*fields["inputs"], *fields.get("through", ()), *fields["outputs"]):
        for name in SINCE_0_1_0:
            if not side[name]:
                del side[name]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def save(path: Path, arrays: Arrays, rest: dict[str, Any]) -> None:
    """Replace the saved position: a line of JSON, then the arrays' bytes. Raises OSError."""
    names = [[name, column.dtype.str, len(column)] for name, column in arrays.items()]
    head = json.dumps({"version": VERSION, "arrays": names, "rest": rest}).encode() + b"\n"
    write_parts(path, [head, *(np.ascontiguousarray(array).data for array in arrays.values())])


def load(path: Path) -> Saved | None:
    """The saved position; None if there is none. Raises ValueError if it is unreadable."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    arrays, place = {}, data.find(b"\n") + 1
    try:
        head = json.loads(data[:place])
        if head["version"] not in READABLE:
            raise ValueError(f"its version is {head['version']}")
        for name, kind, count in head["arrays"]:
            arrays[name] = np.frombuffer(data, kind, count, place)
            place += arrays[name].nbytes
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return arrays, head["rest"]


@dataclass
class PublishedSince:
    """Events published after a position: counts by run id, and events of runs."""

    by_run: dict[str, CountReconciler] = field(default_factory=dict)
    events: set[tuple[str, str]] = field(default_factory=set)

    def counts(self, run_id: str) -> CountReconciler:
        """The counts of one run."""
        return self.by_run.setdefault(run_id, CountReconciler())

    def add(self, topic: str, record: dict[str, Any]) -> None:
        """Add one event."""
        if topic in SUMMED:
            self.counts(record["run_id"]).deduct(topic, record)
        elif topic == catalogue.CONCLUSIONS:
            self.events.add((record["run_id"], topic))
        elif record["event"] in (WatchBegun.name, PhaseStarted.name, Concluded.name):
            self.events.add((record["run_id"], record["event"]))


@dataclass
class CatchingUp:
    """Events published by the previous process after the position, until this process has read as
    far as that one can have."""

    published: PublishedSince
    ends: dict[tuple[str, int], int]
    began_ms: int

    def is_over(self, positions: dict[tuple[str, int], int], before_ms: int) -> bool:
        """Whether everything that may have been published is counted."""
        read = all(positions.get(place, end) >= end for place, end in self.ends.items())
        return read and before_ms >= self.began_ms


class EventStore(Protocol):
    """Where the events of a watch are kept, as positions refer to it."""

    def ends(self) -> list[tuple[str, int, int]]:
        """Name, part and end of each part of it."""

    def published(self, producer: str, since: list[tuple[str, int, int]]) -> PublishedSince:
        """Events of a producer after some ends, as returned by `ends`."""


class ResultTopics:
    """The topics of results, as positions refer to them. Its methods raise KafkaException or
    KafkaUnavailableError."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings

    def ends(self) -> list[tuple[str, int, int]]:
        """Topic, partition and end offset of each partition."""
        with closing(self.connect()) as consumer:
            return self.ends_by(consumer)

    def connect(self) -> Consumer:
        """A consumer for `ends_by`."""
        return assigned_consumer(self._settings, "watcher-ends")

    def ends_by(self, consumer: Consumer) -> list[tuple[str, int, int]]:
        """The same as `ends`, by a consumer that is open."""
        return [(*place, end) for place, end in ends_of(consumer, PUBLISHED).items()]

    def published(self, producer: str, since: list[tuple[str, int, int]]) -> PublishedSince:
        """Events of a producer after some offsets, as returned by `ends`."""
        patience = {"fetch.min.bytes": 1}
        published_since = PublishedSince()
        with closing(assigned_consumer(self._settings, "watcher-history", **patience)) as consumer:
            ends = ends_of(consumer, PUBLISHED)
            begins = {(topic, partition): offset for topic, partition, offset in since}
            spans = {place: (begins.get(place, 0), end) for place, end in ends.items()}
            for name, record in decoded(read_spans(consumer, spans)):
                if record["producer"] == producer:
                    published_since.add(name.replace("_", ".", 1), record)
        return published_since
