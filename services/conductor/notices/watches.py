"""Notices about watches: words, and what was reported. Pure."""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from schemas.suite import NoticeKind

Row = dict[str, Any]
MOST_TOLD: Final = 1_000
DIGITS: Final = 16  # of a digest
# By kind of `watch_trouble`, what is reported although the run stays valid.
REPORTED: Final = {
    "undecodable": "records of {} are not judged",
    "not_readable": "{} cannot be read",
    "group_not_read": "the lag of the group {} is unknown",
    "ended": "its process died",
}


class Problem(NamedTuple):
    """A problem of a watch. key: of one that is the same."""

    kind: NoticeKind
    key: tuple[str, ...]
    title: str
    lines: tuple[str, ...]


class Told:
    """The last MOST_TOLD reported problems and change points, as digests, so that each is reported
    once."""

    def __init__(self, saved: Iterable[str] = ()) -> None:
        self._digests = dict.fromkeys(saved)

    def note(self, *parts: str) -> bool:
        """Note a problem; whether it was not noted before. parts: what identifies it."""
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGITS]
        if digest in self._digests:
            return False
        self._digests[digest] = None
        if len(self._digests) > MOST_TOLD:
            del self._digests[next(iter(self._digests))]
        return True

    def saved(self) -> list[str]:
        """The digests, oldest first."""
        return list(self._digests)


def problem(detail: dict[str, Any], run: str) -> Problem | None:
    """The problem of a `watch_trouble`; None if it is not reported. run: title of its run."""
    kind, reason = detail["kind"], str(detail.get("reason") or "")
    subject = str(detail.get("topic") or detail.get("group") or "")
    if why := detail.get("invalid"):
        return Problem("invalid", (kind, subject), f"{run}: INVALID", (why,))
    if kind not in REPORTED:
        return None
    title = f"watch {detail['watch']}: {REPORTED[kind].format(subject or 'the cluster')}"
    key, lines = [kind, subject], [reason] if reason else []
    if kind == "undecodable":
        key.append(reason)
        lines.append(f"The first is in partition {detail['partition']} at {detail['offset']}.")
    if kind == "ended":
        lines = lines or [f"exit code {detail['code']}"]
        lines.append(f"It is restarted in {detail['again_in_s']:g} s.")
    return Problem("watch_trouble", tuple(key), title, tuple(lines))


def is_of_watch(detail: dict[str, Any]) -> bool:
    """Whether the detail of a conclusion is that of a run of a watch."""
    return "watch" in detail


def title_of(begun: dict[str, Any]) -> str:
    """A run of a watch, given the detail of `watch_begun`: `watch orders, 2026-05-04 03:00 UTC`."""
    begin = datetime.fromtimestamp(begun["start_ms"] / 1000, UTC)
    return f"watch {begun['workload']['name']}, {begin:%Y-%m-%d %H:%M} UTC"
