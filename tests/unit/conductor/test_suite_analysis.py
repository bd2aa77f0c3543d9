"""The analysis of the history after a run of a suite or of a watch."""

import pytest
import structlog

from services.conductor.suites.analysis import TIMEOUT_S, Analysis

pytestmark = pytest.mark.unit


class Process:
    """A process that runs until it is killed, or ends with `code`."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.code = -9

    def wait(self) -> None:
        """Return immediately."""


def test_a_look_that_takes_too_long_is_ended_and_it_is_logged() -> None:
    now_s = 0.0
    look = Analysis(Process, lambda: now_s)  # type: ignore[arg-type]
    look.begin("run-1")
    assert look.goes_on()
    now_s = TIMEOUT_S
    with structlog.testing.capture_logs() as log:
        assert not look.goes_on()
    assert [(one["event"], one["longer_than_s"]) for one in log] == [
        ("changes_not_looked_for", TIMEOUT_S)
    ]


class Started(list[Process]):
    """The processes that an analysis has started."""

    def analysis(self) -> Analysis:
        return Analysis(self._start)  # type: ignore[arg-type]

    def _start(self, run_id: str) -> Process:
        self.append(Process(run_id))
        return self[-1]


@pytest.fixture
def started() -> Started:
    return Started()


def test_after_a_run_of_a_watch_a_look_begins_once_no_other_is_going_on(
    started: Started,
) -> None:
    look = started.analysis()
    look.tick()
    look.begin("run-1")
    for run_id in ("watch-a-1", "watch-b-1"):
        look.want(run_id)
        look.tick()
    assert [one.run_id for one in started] == ["run-1"]
    started[0].code = 0
    look.tick()
    look.tick()
    assert [one.run_id for one in started] == ["run-1", "watch-b-1"]
    started[1].code = 0
    look.tick()
    assert len(started) == 2


def test_a_look_gives_way_to_a_run_and_is_repeated_after_it(started: Started) -> None:
    look = started.analysis()
    look.give_way()
    look.begin("watch-a-1")
    look.give_way()
    assert (started[0].code, look.goes_on()) == (-9, False)
    look.tick()
    assert [one.run_id for one in started] == ["watch-a-1"] * 2
    look.want("watch-b-1")
    look.give_way()
    look.tick()
    assert started[2].run_id == "watch-b-1"


def test_the_look_after_a_run_of_a_suite_is_also_that_of_a_watch(started: Started) -> None:
    look = started.analysis()
    look.want("watch-a-1")
    look.begin("run-1")
    started[0].code = 0
    look.tick()
    assert len(started) == 1
