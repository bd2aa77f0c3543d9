"""Events that end a run early."""

import threading
from collections import deque
from typing import Any

import pytest

from schemas.commands import (
    CancelRun,
    Command,
    FindChanges,
    RequestRun,
    RunSuite,
    from_record,
)
from schemas.suite import SuiteRun
from services.conductor.cancellation import MOST_WAITING, Cancellation
from services.runtime.serving import Service
from tests.unit.requests import RUN_ID, a_request

pytestmark = pytest.mark.unit


class Bus:
    """Commands to deliver, and recorded refusals."""

    def __init__(self, *commands: Command) -> None:
        self.commands = list(commands)
        self.refused: list[tuple[str, Any]] = []

    def poll(self, timeout_s: float) -> Command | None:
        return self.commands.pop(0) if self.commands else None

    def publish(self, event: Any) -> None:
        self.refused.append((event.run_id, event.detail))


def interruptions(bus: Bus, of_suite: bool, waiting: deque[Command]) -> Cancellation:
    suite = SuiteRun(name="nightly", round=1, step=1) if of_suite else None
    request = a_request().model_copy(update={"suite": suite})
    service = Service(bus, bus, threading.Event())  # type: ignore[arg-type]
    return Cancellation(request, service, waiting)


SUITE = RunSuite.model_construct(run_id="other")
OTHER_RUN = RequestRun(run_id="other", request=a_request("other"))


def test_a_run_that_somebody_asked_for_is_not_disturbed_by_another() -> None:
    bus, waiting = Bus(OTHER_RUN), deque()
    found = interruptions(bus, False, waiting)
    assert (found.reason(), found.interrupted) == ("", False)
    refused = {"reason": f"run {RUN_ID} is going on", "going_on": RUN_ID}
    assert (bus.refused, list(waiting)) == ([("other", refused)], [])


def test_a_run_of_a_suite_gives_way_to_what_somebody_asks_for() -> None:
    bus, waiting = Bus(OTHER_RUN), deque()
    found = interruptions(bus, True, waiting)
    assert found.reason() == "The run of the suite gave way to run other."
    assert found.interrupted
    assert (bus.refused, list(waiting)) == ([], [OTHER_RUN])


def test_a_suite_that_is_asked_for_meanwhile_waits() -> None:
    bus, waiting = Bus(SUITE), deque()
    assert interruptions(bus, False, waiting).reason() == ""
    assert list(waiting) == [SUITE]


def test_of_requested_searches_for_change_points_the_newest_waits() -> None:
    bus = Bus(FindChanges(run_id="one"), SUITE, FindChanges(run_id="two"))
    waiting: deque[Command] = deque()
    found = interruptions(bus, False, waiting)
    assert [found.reason() for _ in range(3)] == [""] * 3
    assert list(waiting) == [SUITE, FindChanges(run_id="two")]
    waiting.extend([SUITE] * (MOST_WAITING - 2))
    bus.commands.append(FindChanges(run_id="three"))
    assert found.reason() == ""
    assert (len(waiting), waiting[-1]) == (MOST_WAITING, FindChanges(run_id="three"))


def test_a_cancel_of_another_run_means_nothing_here() -> None:
    bus = Bus(CancelRun(run_id="other"), CancelRun(run_id=RUN_ID, reason="interrupted"))
    found = interruptions(bus, False, deque())
    assert [found.reason(), found.reason()] == ["", "The run was interrupted."]


def test_what_ends_the_floor_of_a_run_ends_the_run_too() -> None:
    bus = Bus(CancelRun(run_id=RUN_ID, reason="interrupted"), OTHER_RUN)
    found = interruptions(bus, True, deque())
    assert [found.reason(), found.reason()] == ["The run was interrupted."] * 2
    assert bus.commands == [OTHER_RUN], "what comes after is the next one's"


@pytest.mark.parametrize("body", ["{}", "no JSON"])
def test_a_cancel_without_a_reason_has_one_all_the_same(body: str) -> None:
    head = {"run_id": RUN_ID, "command_id": "1", "issued_at": 1, "producer": "console"}
    command = from_record(head | {"command": "cancel", "body": body})
    found = interruptions(Bus(command), False, deque())
    assert found.reason() == "The run was cancelled."
