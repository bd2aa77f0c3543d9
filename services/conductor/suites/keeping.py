"""Pipelines that stay between two runs of a suite, so that the next one finds them warm. Pure."""

from dataclasses import dataclass

from schemas.protocol import RunRequest
from schemas.suite import Pace, Step
from services.conductor.run_state import RunState
from services.conductor.search.searching import can_stay_warm, keeps_up

PREPARING_MS = 10_000  # pipelines that are kept must be there when a run asks for them


@dataclass
class Keeping:
    """What waits, and until when, epoch milliseconds; nothing where `served` is empty."""

    served: tuple[object, ...] = ()
    until_ms: int = 0

    def keep(self, request: RunRequest, state: RunState, until_ms: int) -> bool:
        """Whether the pipelines of a run that ends can wait; they are kept then."""
        if not can_stay_warm(request) or not keeps_up(state):
            return False
        self.served, self.until_ms = served(request), until_ms
        return True

    def take(self, request: RunRequest, now_ms: int) -> bool:
        """Whether a run finds its pipelines; nothing waits after it has begun."""
        found = self.served == served(request) and now_ms + PREPARING_MS < self.until_ms
        self.forget()
        return found

    def forget(self) -> None:
        """Another run has begun, so nothing waits any more."""
        self.served, self.until_ms = (), 0


def go_on(pace: Pace, last: Step, following: Step) -> bool:
    """Whether one step can go on with the pipelines of another after the pause. A search keeps its
    own, a kill leaves pipelines that are as nobody knows, and some start after their load."""
    if pace.keep_warm_s <= pace.pause_s or not last.same_pipelines(following):
        return False
    if following.workload.pipelines_start_s:
        return False
    return not any(one.workload.search or one.workload.kills for one in (last, following))


def served(request: RunRequest) -> tuple[object, ...]:
    """What must be the same for pipelines to go on with a run, as the runner has it too."""
    published = tuple(request.stages_of(pipeline) for pipeline in request.pipelines)
    return request.pipelines, published, request.domains, request.workload.content.format
