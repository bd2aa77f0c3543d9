"""A run that is interrupted is cancelled, and its conclusion awaited."""

import io
import json
from typing import Any

import pytest
from rich.console import Console

from schemas import catalogue, protocol
from services.console import run_command as module
from services.console.run_command import BusyError, RunError, perform
from services.runtime.settings import ServiceSettings
from tests.unit.conductor.search_events import A_STEP
from tests.unit.requests import a_lifecycle_event, a_request, an_event

pytestmark = pytest.mark.unit

CONCLUDED = a_lifecycle_event(
    protocol.CONCLUDED, json.dumps({"valid": False, "clean": False, "invalid_reasons": ["-"]})
)

A_STEP_TOLD = an_event(kind="search_step", detail=json.dumps(A_STEP))


class Bus:
    """Takes commands; a step of a search comes at once, the conclusion once the run was
    cancelled."""

    def __init__(self) -> None:
        self.coming = [(catalogue.CONCLUSIONS, A_STEP_TOLD)]
        self.commands: list[tuple[str, str]] = []
        self.closed = False

    def command(self, name: str, run_id: str, body: Any) -> None:
        self.commands.append((name, getattr(body, "reason", "")))

    def poll(self, timeout_s: float) -> list[tuple[str, dict[str, Any]]]:
        cancelled = any(name == "cancel" for name, _reason in self.commands)
        found, self.coming = self.coming, []
        return found + ([(catalogue.LIFECYCLE, CONCLUDED)] if cancelled else [])

    def ends(self, topics: Any) -> dict[tuple[str, int], int]:
        return {("results.lifecycle", 0): 3}

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Bus:
    found = Bus()
    projected = [{"topic": "results.lifecycle", "partition": 0, "next_offset": 3}]
    monkeypatch.setattr(module, "open_events", lambda *_: found)
    monkeypatch.setattr(module, "Bus", lambda *_: found)
    monkeypatch.setattr(module, "query", lambda *_: projected)
    return found


class Interrupts:
    """A watch of the stack in which Ctrl-C comes at its first looks, as often as told."""

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
    refused = a_lifecycle_event(protocol.RUN_REFUSED, json.dumps(detail))
    bus.coming = [(catalogue.LIFECYCLE, refused)]
    with pytest.raises(RunError, match=f"^The run was refused: {detail['reason']}.$") as raised:
        perform(a_request(), ServiceSettings(), Console(file=io.StringIO()), lambda: None)
    assert raised.type is error
