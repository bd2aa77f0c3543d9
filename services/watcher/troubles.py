"""Problems of a watch, as reported to users, and records that were read and not judged, by topic
and reason. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from confluent_kafka import KafkaError

from services.watcher.extracting import MAX_REASONS, OTHERS, RefusedKind, RefusedRecords

SILENT_MS: Final = 30_000
REFUSALS: Final = (  # permanent errors; for a group it is ignored
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.UNSUPPORTED_VERSION,
)
Kind = RefusedKind | Literal["outside", "removed", "unpaired"]


@dataclass
class Trouble:
    """A problem to report: an event of `results.lifecycle` of its own kind.

    until_ms: no record concerned is later, if there are any. run: number of the first run
    concerned; None for the current one.
    """

    kind: str
    detail: dict[str, Any]
    until_ms: int = 0
    run: int | None = None


@dataclass
class NotReadable:
    """Reports that a cluster refuses access to a topic, once per reason, and that it has returned
    no end offsets for SILENT_MS, once until it does. reason: of the latest silence."""

    reason: str = ""
    _refused: set[tuple[str, int]] = field(default_factory=set)
    _answered_ms: int | None = None

    def refused(self, topic: str, error: KafkaError) -> Iterator[Trouble]:
        """The problem of an error about a topic, unless it is temporary or known."""
        if error.code() in REFUSALS and (topic, error.code()) not in self._refused:
            self._refused.add((topic, error.code()))
            detail = {"topic": topic, "code": error.name(), "reason": error.str()}
            yield Trouble("not_readable", detail)

    def answered(self, now: int) -> None:
        """Note that the cluster answered."""
        self._answered_ms = now

    def silent(self, now: int) -> Iterator[Trouble]:
        """The problem of end offsets that were not returned, if it has lasted long enough."""
        if self._answered_ms is not None and now - self._answered_ms > SILENT_MS:
            self._answered_ms = None
            reason = f"it has returned no end offsets for {SILENT_MS // 1000} s"
            yield Trouble("not_readable", {"reason": f"{reason}: {self.reason}"})


def undecodable(refused: Mapping[tuple[str, str], RefusedRecords]) -> Iterator[Trouble]:
    """Records without an identity, by topic and reason."""
    for (topic, reason), first in refused.items():
        place = {"partition": first.partition, "offset": first.offset}
        detail = {"topic": topic, "reason": reason, "records": first.count, **place}
        yield Trouble("undecodable", detail)


def objection(trouble: Trouble) -> str:
    """Why the problem makes a run invalid; empty if it does not."""
    detail = trouble.detail
    if trouble.kind == "retention_overtook":
        reason = f"{detail['records']} records of {detail['topic']} were deleted before they were"
        return f"{reason} read."
    if trouble.kind == "truncated":
        return f"Records of {detail['topic']} that had been read were removed from its end."
    if trouble.kind == "topic_deleted":
        return f"The topic {detail['topic']} was deleted."
    if trouble.kind == "not_repeatable":
        return "After a restart the topics returned different records."
    return str(detail.get("invalid", ""))


@dataclass
class UnjudgedRow:
    """Records of one topic with one reason. partition, offset: of the first; -1 if unknown.

    kind: refused, if it cannot be evaluated, which is a complaint about the run; other_type, if its
    type is not the watched one or `where` leaves it out; tombstone, if it has no value; delete, if
    it says that a row was deleted; outside, if its timestamp is just before or after the watch;
    removed, if it was removed before it could be read; unpaired, for an output or input whose
    counterpart may have been removed.
    """

    topic: str
    kind: Kind
    reason: str
    records: int
    partition: int = -1
    offset: int = -1


class UnjudgedRecords:
    """The rows of a run; of one topic and kind at most MAX_REASONS, and one for the rest."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, Kind, str], UnjudgedRow] = {}

    def add(self, row: UnjudgedRow) -> None:
        """Count the records of a row."""
        side = [each for each in self._rows if each[:2] == (row.topic, row.kind)]
        name = (row.topic, row.kind, row.reason)
        if name not in self._rows and len(side) >= MAX_REASONS:
            name = (row.topic, row.kind, OTHERS)
        if name in self._rows:
            self._rows[name].records += row.records
        else:
            self._rows[name] = replace(row, reason=name[2])

    def rows(self) -> list[dict[str, Any]]:
        """All rows as JSON types, by topic, kind and reason."""
        return [asdict(self._rows[name]) for name in sorted(self._rows)]
