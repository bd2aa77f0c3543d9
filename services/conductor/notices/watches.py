"""Notices about watches: words, and what was reported. Pure."""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from schemas.events import WatchTrouble
from schemas.suite import NoticeKind
from schemas.watch import WatchRun

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


def problem(trouble: WatchTrouble, run: str) -> Problem | None:
    """The problem to report; None if it is not reported. run: title of its run."""
    kind, reason, subject = trouble.kind, trouble.reason, trouble.topic or trouble.group
    if trouble.invalid:
        return Problem("invalid", (kind, subject), f"{run}: INVALID", (trouble.invalid,))
    if kind not in REPORTED:
        return None
    title = f"watch {trouble.watch}: {REPORTED[kind].format(subject or 'the cluster')}"
    key, lines = [kind, subject], [reason] if reason else []
    if kind == "undecodable":
        key.append(reason)
        lines.append(f"The first is in partition {trouble.partition} at {trouble.offset}.")
    if kind == "ended":
        lines = lines or [f"exit code {trouble.code}"]
        lines.append(f"It is restarted in {trouble.again_in_s or 0:g} s.")
    return Problem("watch_trouble", tuple(key), title, tuple(lines))


def title_of(run: WatchRun) -> str:
    """A run of a watch: `watch orders, 2026-05-04 03:00 UTC`."""
    begin = datetime.fromtimestamp(run.start_ms / 1000, UTC)
    return f"watch {run.workload.name}, {begin:%Y-%m-%d %H:%M} UTC"
