"""Keeps pipelines warm between two runs of a suite. Pure."""

from dataclasses import dataclass

from schemas.protocol import RunRequest
from schemas.suite import Pace, Step
from services.conductor.run_state import RunState
from services.conductor.search.requests import can_stay_warm
from services.conductor.search.searching import keeps_up

PREPARING_MS = 10_000  # kept pipelines must not expire while a run asks for them


@dataclass
class Keeping:
    """Kept pipelines and their expiry, epoch milliseconds; none if `served` is empty."""

    served: tuple[object, ...] = ()
    until_ms: int = 0

    def keep(self, request: RunRequest, state: RunState, until_ms: int) -> bool:
        """Keep the pipelines of an ending run if possible; returns whether they are kept."""
        if not can_stay_warm(request) or not keeps_up(state):
            return False
        self.served, self.until_ms = request.served, until_ms
        return True

    def take(self, request: RunRequest, now_ms: int) -> bool:
        """Whether a run can use the kept pipelines; nothing is kept after it has begun."""
        found = self.served == request.served and now_ms + PREPARING_MS < self.until_ms
        self.forget()
        return found

    def forget(self) -> None:
        """Discard kept pipelines because another run has begun."""
        self.served, self.until_ms = (), 0


def go_on(pace: Pace, last: Step, following: Step) -> bool:
    """Whether one step can use the pipelines of another after the pause. Not if either is a search,
    which keeps its own, kills a part, or starts pipelines after its load, or if they compile
    differently."""
    if pace.keep_warm_s <= pace.pause_s or not last.same_pipelines(following):
        return False
    workload = following.workload
    if workload.pipelines_start_s or workload.has_long_warm_up != last.workload.has_long_warm_up:
        return False
    return not any(one.workload.search or one.workload.kills for one in (last, following))
