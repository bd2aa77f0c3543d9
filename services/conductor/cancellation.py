"""Reasons to end the current run early."""

from collections import deque
from collections.abc import Sequence

from analysis.thresholds import ENDED
from schemas.commands import CancelRun, Command, FindChanges, Malformed, RequestRun, RunSuite
from schemas.events import RunRefused
from schemas.protocol import RunRequest
from services.runtime.events import Events
from services.runtime.serving import Service

MOST_WAITING = 16
STOPPED = "The conductor was stopped."
GAVE_WAY = "The run of the suite gave way to run"
CANCELLED = "The run was"


def refuse(events: Events, run_id: str, reason: str, going_on: str = "") -> None:
    """Publish that a run is refused. going_on: the run that prevents it."""
    events.publish(RunRefused(run_id=run_id, reason=reason, going_on=going_on))


class Cancellation:
    """`cancel`, the end of this process and, for a run of a suite, a requested run.

    waiting: commands that arrived meanwhile and are carried out next, at most MOST_WAITING.
    A reason also ends the following run: if a run's floor is cancelled, so is the run.
    """

    def __init__(
        self,
        request: RunRequest,
        service: Service,
        waiting: deque[Command],
    ) -> None:
        self._found = ""
        self._request = request
        self._service = service
        self._waiting = waiting

    def reason(self) -> str:
        """Why the run should end now, or an empty string; the first reason is kept."""
        self._found = self._found or self._look()
        return self._found

    @property
    def interrupted(self) -> bool:
        """Whether there is a reason."""
        return bool(self._found)

    def _look(self) -> str:
        if self._service.stop.is_set():
            return STOPPED
        command = self._service.commands.poll(0)
        match command:
            case RunSuite() if len(self._waiting) < MOST_WAITING:
                self._waiting.append(command)
            case FindChanges():
                self._search_later(command)
            case RequestRun():
                return self._other_run(command)
            case Malformed(name="run"):
                refuse(self._service.events, command.run_id, command.reason)
            case CancelRun() if command.run_id == self._request.run_id:
                return f"{CANCELLED} {command.reason or 'cancelled'}."
        return ""

    def _search_later(self, command: FindChanges) -> None:
        """Keep the newest request to look for change points: it covers the earlier ones."""
        kept = [each for each in self._waiting if not isinstance(each, FindChanges)]
        self._waiting.clear()
        self._waiting.extend(kept if len(kept) >= MOST_WAITING else [*kept, command])

    def _other_run(self, command: RequestRun) -> str:
        """Runs of a suite yield to a new run; during any other run, the new one is refused."""
        if self._request.suite is None or len(self._waiting) >= MOST_WAITING:
            mine = self._request.run_id
            refuse(self._service.events, command.run_id, f"run {mine} is going on", mine)
            return ""
        self._waiting.append(command)
        return f"{GAVE_WAY} {command.run_id}."


def was_asked_for(reasons: Sequence[str]) -> bool:
    """Whether a run is not valid because a user ended it; thresholds do not count."""
    if not reasons or reasons[0].startswith(ENDED):
        return False
    return reasons[0].startswith((STOPPED, GAVE_WAY, CANCELLED))
