"""A run that is interrupted is cancelled, and its conclusion awaited."""

import io
import json
from typing import Any

import pytest
from rich.console import Console

from schemas import catalogue
from schemas.commands import Command
from schemas.events import (
    BusEvent,
    Concluded,
    EvaluationResumed,
    FirstOutputs,
    RunRefused,
    ServiceStarted,
    event_of,
)
from services.console import run_command as module
from services.console.run_command import BusyError, RunError, perform
from services.runtime.settings import ServiceSettings
from tests.unit.conductor.search_events import A_STEP
from tests.unit.requests import a_lifecycle_event, a_request, an_event

pytestmark = pytest.mark.unit

CONCLUDED = a_lifecycle_event(
    Concluded.name, json.dumps({"valid": False, "clean": False, "invalid_reasons": ["-"]})
)

A_STEP_TOLD = an_event(kind="search_step", invalid_reasons=[], detail=json.dumps(A_STEP))


class Bus:
    """Receives commands; a search step arrives at once, the conclusion once the run was
    cancelled."""

    def __init__(self) -> None:
        self.coming = [event_of(catalogue.CONCLUSIONS, A_STEP_TOLD)]
        self.commands: list[tuple[str, str]] = []
        self.closed = False

    def send(self, command: Command) -> None:
        self.commands.append((command.name, getattr(command, "reason", "")))

    def poll(self, timeout_s: float) -> list[BusEvent]:
        cancelled = any(name == "cancel" for name, _reason in self.commands)
        found, self.coming = self.coming, []
        return found + ([event_of(catalogue.LIFECYCLE, CONCLUDED)] if cancelled else [])

    def ends(self, topics: Any) -> dict[tuple[str, int], int]:
        return {("results.lifecycle", 0): 3}

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Bus:
    found = Bus()
    projected = {("results.lifecycle", 0): 3}
    monkeypatch.setattr(module, "open_events", lambda *_: found)
    monkeypatch.setattr(module, "Bus", lambda *_: found)
    monkeypatch.setattr(module, "projected", lambda *_: projected)
    return found


class Interrupts:
    """A check of the stack that raises Ctrl-C on its first calls, as often as given."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> None:
        if self.left:
            self.left -= 1
            raise KeyboardInterrupt


def a_console() -> Console:
    return Console(file=io.StringIO())


def test_what_was_measured_is_awaited_after_an_interruption(bus: Bus) -> None:
    progress = perform(a_request(), ServiceSettings(), a_console(), Interrupts(1))
    assert (progress.interrupted, progress.done, progress.valid) == (True, True, False)
    assert bus.commands == [("run", ""), ("cancel", "interrupted")]
    assert bus.closed


def test_what_a_search_has_told_is_not_told_again_after_an_interruption(bus: Bus) -> None:
    console = a_console()
    looks = iter((False, True))

    def interrupt_at_second_look() -> None:
        if next(looks, False):
            raise KeyboardInterrupt

    perform(a_request(), ServiceSettings(), console, interrupt_at_second_look)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("step 1: 8000/s") == 1


def test_a_second_interruption_ends_the_waiting(bus: Bus) -> None:
    with pytest.raises(KeyboardInterrupt):
        perform(a_request(), ServiceSettings(), a_console(), Interrupts(2))
    assert bus.commands == [("run", ""), ("cancel", "interrupted")]
    assert bus.closed


def test_a_run_whose_stack_fails_is_cancelled(bus: Bus) -> None:
    def fail() -> None:
        raise RunError("kafka ended")

    with pytest.raises(RunError, match="kafka ended"):
        perform(a_request(), ServiceSettings(), a_console(), fail)
    assert bus.commands == [("run", ""), ("cancel", "cancelled")]


@pytest.mark.parametrize(
    ("detail", "error"),
    [
        ({"reason": "run R is going on", "going_on": "R"}, BusyError),
        ({"reason": "it has no stages"}, RunError),
    ],
)
def test_a_run_that_is_refused_says_whether_another_is_going_on(
    bus: Bus, detail: dict[str, str], error: type[RunError]
) -> None:
    refused = a_lifecycle_event(RunRefused.name, json.dumps(detail))
    bus.coming = [event_of(catalogue.LIFECYCLE, refused)]
    with pytest.raises(RunError, match=f"^The run was refused: {detail['reason']}.$") as raised:
        perform(a_request(), ServiceSettings(), Console(file=io.StringIO()), lambda: None)
    assert raised.type is error


class Clock:
    """Advances by a second on each call."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        self.now_s += 1.0
        return self.now_s


OF_ANOTHER = a_lifecycle_event(EvaluationResumed.name) | {"run_id": "another"}
NEW_CONDUCTOR = a_lifecycle_event(ServiceStarted.name) | {
    "run_id": "",
    "producer": "conductor",
}


def followed(bus: Bus, monkeypatch: pytest.MonkeyPatch, *first: dict[str, Any]) -> Clock:
    """Follow a run that publishes only these events, among events of others, for 90 seconds."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    coming = list(first)

    def poll(_timeout_s: float) -> list[BusEvent]:
        if clock.now_s > 90:
            return [event_of(catalogue.LIFECYCLE, CONCLUDED)]
        return [event_of(catalogue.LIFECYCLE, coming.pop(0) if coming else OF_ANOTHER)]

    monkeypatch.setattr(bus, "poll", poll)
    perform(a_request(), ServiceSettings(), a_console(), lambda: None)
    return clock


def test_a_run_that_a_new_conductor_does_not_take_is_not_awaited_for_ever(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunError, match="restarted and did not accept the run"):
        followed(bus, monkeypatch, OF_ANOTHER, NEW_CONDUCTOR)


def test_a_run_waits_while_another_ends_or_its_own_floor_is_measured(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = a_lifecycle_event(FirstOutputs.name)
    assert followed(bus, monkeypatch).now_s > 90
    assert followed(bus, monkeypatch, NEW_CONDUCTOR, taken).now_s > 90
