"""Detects that no results arrive, overall or from one watch, and that they have resumed."""

from collections.abc import Callable
from typing import Final

from schemas.events import Concluded, LifecycleEvent, WatchBegun
from services.conductor.notices.notice import Notice, end_of_silence, silence
from services.conductor.notices.outbox import Outbox, Quiet

MOST_WATCHES: Final = 100
MOST_RUNS: Final = 10 * MOST_WATCHES  # whose watches are remembered
MINUTE_MS: Final = 60_000


class Silences:
    """Times without results; its state is the outbox's.

    has_suite: whether there is a suite; then only results of runs count for the silence of
    everything, not those of watches. A watch counts from the event that begins it until the one
    that ends it.
    """

    def __init__(self, outbox: Outbox, has_suite: Callable[[], bool]) -> None:
        self._outbox, self._has_suite = outbox, has_suite

    def event(self, event: LifecycleEvent, now_ms: int) -> None:
        """Note that a watch begins a run or ends."""
        watches, runs = self._outbox.watches, self._outbox.watched_runs
        match event:
            case WatchBegun(run_id=run_id, run=run):
                runs[run_id] = run.workload.name
                watches.setdefault(run.workload.name, Quiet(since_ms=now_ms))
                while len(watches) > MOST_WATCHES:
                    del watches[next(iter(watches))]
                while len(runs) > MOST_RUNS:
                    del runs[next(iter(runs))]
            case Concluded(ended=True):
                watches.pop(runs.get(event.run_id, ""), None)

    def result(self, run_id: str, end: int, now_ms: int) -> list[Notice]:
        """Note a result of a run. end: next offset of its topic."""
        outbox, found = self._outbox, []
        name = outbox.watched_runs.get(run_id, "")
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
