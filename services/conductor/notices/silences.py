"""Detects that no results arrive, overall or from one watch, and that they have resumed."""

import re
from collections.abc import Callable
from typing import Any, Final

from schemas import protocol
from services.conductor.notices.notice import Notice, end_of_silence, silence
from services.conductor.notices.outbox import Outbox, Quiet

OF_WATCH: Final = re.compile(r"watch-(.+)-\d{8}-\d{6}(-[0-9a-f]+)?")  # services/watcher/runs.py
MOST_WATCHES: Final = 100
MINUTE_MS: Final = 60_000


class Silences:
    """Times without results; its state is the outbox's.

    has_suite: whether there is a suite; then only results of runs count for the silence of
    everything, not those of watches. A watch counts from the event that begins it until the one
    that ends it.
    """

    def __init__(self, outbox: Outbox, has_suite: Callable[[], bool]) -> None:
        self._outbox, self._has_suite = outbox, has_suite

    def event(self, record: dict[str, Any], detail: dict[str, Any], now_ms: int) -> None:
        """Note that a watch begins or ends, given an event of `results.lifecycle`."""
        watches = self._outbox.watches
        if record["event"] == protocol.WATCH_BEGUN:
            watches.setdefault(detail["workload"]["name"], Quiet(since_ms=now_ms))
            while len(watches) > MOST_WATCHES:
                del watches[next(iter(watches))]
        elif record["event"] == protocol.CONCLUDED and detail.get("ended"):
            watches.pop(watch_of(record["run_id"]), None)

    def result(self, run_id: str, end: int, now_ms: int) -> list[Notice]:
        """Note a result of a run. end: next offset of its topic."""
        outbox, name, found = self._outbox, watch_of(run_id), []
        known = outbox.watches.get(name)
        if known is not None:
            outbox.watches[name] = Quiet(since_ms=now_ms)
            found += [end_of_silence(known.since_ms, now_ms, name)] if known.told else []
        if name and self._has_suite():
            outbox.quiet = outbox.quiet.model_copy(update={"end": end})
            return found
        before, outbox.quiet = outbox.quiet, Quiet(end=end, since_ms=now_ms)
        return [*found, end_of_silence(before.since_ms, now_ms)] if before.told else found

    def look(self, minutes: float, now_ms: int) -> list[Notice]:
        """The silences that last for these minutes now. That of everything includes all watches."""
        outbox, found = self._outbox, []

        def is_due(quiet: Quiet) -> bool:
            return not quiet.told and 0 < minutes * MINUTE_MS <= now_ms - quiet.since_ms

        if is_due(outbox.quiet):
            found.append(silence(outbox.quiet.since_ms, minutes, now_ms))
            outbox.quiet = outbox.quiet.model_copy(update={"told": True})
        if outbox.quiet.told:
            return found
        for name, quiet in outbox.watches.items():
            if is_due(quiet):
                found.append(silence(quiet.since_ms, minutes, now_ms, name))
                outbox.watches[name] = quiet.model_copy(update={"told": True})
        return found


def watch_of(run_id: str) -> str:
    """Name of the watch that a run belongs to; empty if it is none of a watch."""
    found = OF_WATCH.fullmatch(run_id)
    return found[1] if found else ""
