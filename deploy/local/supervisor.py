"""Restarts dead parts within their budget.

Used by the process that started the stack, which calls tick() a few times a second. A part that
dies, or does not become ready again in time, waits for its delay and its dependencies, and is then
started as at first. Restarts are reported to the terminal, the bus and `stack.json`.

Events about parts are published on the bus. The broker may be the part that died, so nothing here
waits for it: events stay in the client's bounded queue until it responds, for five minutes at most.
"""

import subprocess
import time
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import KafkaException
from pydantic import Field

from deploy.local.parts import StackPart
from deploy.local.processes import end, exit_code, is_alive
from deploy.local.startup import log_path
from deploy.local.state import (
    READY,
    RESTARTING,
    STARTING,
    Identity,
    ServiceState,
    StackError,
    StackState,
    StackStoppedError,
    StateFile,
    ending,
    unwritable,
    worn_out,
)
from schemas.events import LifecycleEvent, PartDown, PartUp
from services.runtime.events import Events, open_events
from services.runtime.kafka import KafkaUnavailableError
from services.runtime.logs import bound_log
from services.runtime.settings import ServiceSettings

PRODUCER = "stack"
LAST_WORDS_TIMEOUT_S = 2.0
Launch = Callable[[StackPart], tuple["subprocess.Popen[bytes]", Identity]]
STOPPED_BY_ANOTHER = "the stack was stopped by another tidegauge"


class Announcer:
    """Publishes lifecycle events of the stack. Connects at the first event: most stacks have
    none."""

    def __init__(self, settings: ServiceSettings) -> None:
        # Otherwise the client prints repeated connection errors on the terminal.
        quiet = {**settings.kafka_properties, "log_level": "0"}
        self._settings = settings.model_copy(update={"instance": "", "kafka_properties": quiet})
        self._events: Events | None = None

    def say(self, event: LifecycleEvent) -> None:
        """Publish an event as soon as the broker accepts it."""
        if self._events is None:
            self._events = open_events(self._settings, PRODUCER)
        self._events.publish(event, flush=False)

    def serve(self) -> None:
        """Serve the client's callbacks; call periodically."""
        if self._events is not None:
            self._events.flush(0)

    def close(self) -> None:
        """Wait briefly for acknowledgements."""
        if self._events is not None:
            self._events.give_up(LAST_WORDS_TIMEOUT_S)
            self._events = None


@dataclass(frozen=True)
class Budget:
    """At most `restarts` of one part within any `window_s` seconds, with doubling delays.

    So a part that dies occasionally is always restarted, and one that cannot run ends the stack
    within about `first_delay_s` times two to the power of `restarts`.
    """

    restarts: int = 5
    window_s: float = 600.0
    first_delay_s: float = 0.5
    longest_delay_s: float = 30.0

    def delay_s(self, past_s: tuple[float, ...], now_s: float) -> float | None:
        """Seconds to wait before the next start; None when the budget is used up."""
        recent = len(self.recent(past_s, now_s))
        if recent >= self.restarts:
            return None
        return float(min(self.longest_delay_s, self.first_delay_s * 2**recent))

    def recent(self, past_s: tuple[float, ...], now_s: float) -> tuple[float, ...]:
        """The past restarts that still count."""
        return tuple(at_s for at_s in past_s if now_s - at_s < self.window_s)


class SupervisionSettings(ServiceSettings):
    """max_restarts: maximum restarts of one part within any restart_window_s seconds; with 0 the
    stack ends with its first dead part."""

    max_restarts: int = Field(5, ge=0, le=1000)
    restart_window_s: float = Field(600, gt=0)


def budget_of(settings: ServiceSettings) -> Budget:
    """The budget from the settings and the environment."""
    supervision_settings = SupervisionSettings(**settings.model_dump())
    return Budget(supervision_settings.max_restarts, supervision_settings.restart_window_s)


@dataclass
class _Case:
    """State of one part. Times in monotonic seconds.

    restarted_s: times of its restarts. down_s: since when it does not serve, or None. due_s: when
    to restart it, or None. started_s: since when it is starting, or None.
    """

    restarted_s: tuple[float, ...] = ()
    down_s: float | None = None
    due_s: float | None = None
    started_s: float | None = None


class Supervisor:
    """Supervises one running stack. For one thread."""

    def __init__(
        self,
        settings: ServiceSettings,
        parts: Iterable[StackPart],
        state: StackState,
        file: StateFile,
        *,
        processes: MutableMapping[str, "subprocess.Popen[bytes]"],
        launch: Launch,
        announcer: Announcer,
        on_progress: Callable[[str], None],
        ready_deadline_s: float,
    ) -> None:
        self.state = state
        self._settings = settings
        self._parts = {part.name: part for part in parts}
        self._file = file
        self._processes = processes
        self._launch = launch
        self._announcer = announcer
        self._progress = on_progress
        self._deadline_s = ready_deadline_s
        self._budget = budget_of(settings)
        self._cases = {name: _Case() for name in self._parts}

    def tick(self) -> None:
        """Check every part and take due actions. Also bounds the logs.

        Raises StackError if a part has used up its budget or cannot be recorded, StackStoppedError
        if another process stops the stack.
        """
        try:
            self._look_at_all()
        except OSError as error:
            raise unwritable(error, self._settings.data) from error
        self._announcer.serve()

    def _look_at_all(self) -> None:
        for service in self.state.services:
            part, case = self._parts[service.name], self._cases[service.name]
            if case.due_s is not None:
                if time.monotonic() >= case.due_s and self._can_start(part):
                    self._start_again(part, case, service)
            elif not self._runs(service):
                self._died(part, case, service, ending(exit_code(self._processes[part.name])))
            elif case.started_s is not None:
                self._look_after(part, case, service, case.started_s)
            else:
                bound_log(self._log(part))

    def _runs(self, service: ServiceState) -> bool:
        process = self._processes[service.name]
        return process.poll() is None and is_alive(service.identity)

    def _can_start(self, part: StackPart) -> bool:
        return all(self._cases[name].down_s is None for name in part.after)

    def _died(self, part: StackPart, case: _Case, service: ServiceState, how: str) -> None:
        now_s = time.monotonic()
        self._record(replace(service, state=RESTARTING))
        delay_s = self._budget.delay_s(case.restarted_s, now_s)
        case.restarted_s = self._budget.recent(case.restarted_s, now_s)
        number = len(case.restarted_s) + 1 if delay_s is not None else 0
        reason = f"{part.name} {how}"
        self._announcer.say(PartDown(part=part.name, reason=reason, restart=number))
        if delay_s is None:
            raise worn_out(part.name, how, len(case.restarted_s), self._log(part))
        end([service.identity], self.state.stack_id, 0)
        case.due_s, case.started_s = now_s + delay_s, None
        case.down_s = now_s if case.down_s is None else case.down_s
        self._progress(
            f"{reason}; restarting it in {delay_s:g} s"
            f" (restart {number} of {self._budget.restarts} in {self._budget.window_s / 60:g} min)"
        )

    def _start_again(self, part: StackPart, case: _Case, service: ServiceState) -> None:
        case.restarted_s = (*case.restarted_s, time.monotonic())
        restarts = service.restarts + 1
        try:
            self._processes[part.name], identity = self._launch(part)
        except StackError as error:
            self._died(part, case, replace(service, restarts=restarts), f"did not start: {error}")
            return
        started = ServiceState(part.name, identity.pid, identity.birth, STARTING, restarts)
        case.due_s, case.started_s = None, time.monotonic()
        try:
            self._record(started)
        except StackStoppedError:
            end([identity], self.state.stack_id, 0)
            raise

    def _look_after(
        self, part: StackPart, case: _Case, service: ServiceState, started_s: float
    ) -> None:
        if part.ready(self._settings) and self._does_its_work(part):
            outage_s = time.monotonic() - (case.down_s or started_s)
            case.down_s = case.started_s = None
            self._record(replace(service, state=READY))
            self._progress(f"{part.name} is ready again after {outage_s:.1f} s")
            self._announcer.say(PartUp(part=part.name, outage_s=round(outage_s, 3)))
        elif time.monotonic() - started_s > self._deadline_s:
            self._died(part, case, service, f"was not ready within {self._deadline_s:g} s")

    def _does_its_work(self, part: StackPart) -> bool:
        try:
            part.once_ready(self._settings)
        except (KafkaException, KafkaUnavailableError):
            return False  # retried until the deadline
        return True

    def _record(self, service: ServiceState) -> None:
        state = self._file.record(self.state.stack_id, service)
        if state is None:
            raise StackStoppedError(STOPPED_BY_ANOTHER)
        self.state = state

    def _log(self, part: StackPart) -> Path:
        return log_path(self._settings.data, part.name)
