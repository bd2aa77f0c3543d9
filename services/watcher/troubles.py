"""Problems of a watch, as reported to users. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError

from services.watcher.extracting import Refused

SILENT_MS: Final = 30_000
REFUSALS: Final = (  # permanent errors; for a group it is ignored
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.UNSUPPORTED_VERSION,
)


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
            told = {"topic": topic, "code": error.name(), "reason": error.str()}
            yield Trouble("not_readable", told)

    def answered(self, now: int) -> None:
        """Note that the cluster answered."""
        self._answered_ms = now

    def silent(self, now: int) -> Iterator[Trouble]:
        """The problem of end offsets that were not returned, if it has lasted long enough."""
        if self._answered_ms is not None and now - self._answered_ms > SILENT_MS:
            self._answered_ms = None
            reason = f"it has returned no end offsets for {SILENT_MS // 1000} s"
            yield Trouble("not_readable", {"reason": f"{reason}: {self.reason}"})


def undecodable(refused: Mapping[tuple[str, str], Refused]) -> Iterator[Trouble]:
    """Records without an identity, by topic and reason."""
    for (topic, reason), first in refused.items():
        place = {"partition": first.partition, "offset": first.offset}
        told = {"topic": topic, "reason": reason, "records": first.count, **place}
        yield Trouble("undecodable", told)


def objection(trouble: Trouble) -> str:
    """Why the problem makes a run invalid; empty if it does not."""
    told = trouble.detail
    if trouble.kind == "retention_overtook":
        reason = f"{told['records']} records of {told['topic']} were deleted before they were"
        return f"{reason} read."
    if trouble.kind == "truncated":
        return f"Records of {told['topic']} that had been read were removed from its end."
    if trouble.kind == "topic_deleted":
        return f"The topic {told['topic']} was deleted."
    if trouble.kind == "not_repeatable":
        return "After a restart the topics returned different records."
    return str(told.get("invalid", ""))
