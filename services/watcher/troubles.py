"""Problems of a watch, as reported to users. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from services.watcher.extracting import Refused


@dataclass
class Trouble:
    """A problem to report: an event of `results.lifecycle` of its own kind."""

    kind: str
    detail: dict[str, Any]


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
    if trouble.kind == "topic_deleted":
        return f"The topic {told['topic']} was deleted."
    if trouble.kind == "not_repeatable":
        return "After a restart the topics returned different records."
    return ""
