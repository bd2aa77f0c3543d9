"""Sources are polled in turn; a source without data leaves a visible gap."""

import threading
import time

import pytest
import structlog
from structlog.testing import LogCapture

from services.collector.sources import (
    COUNTER,
    GAUGE,
    NoAnswerError,
    Sample,
    SourcePolling,
    WatchedSource,
)

pytestmark = pytest.mark.unit
DEADLINE_S = 30.0
UP, DOWN = Sample("up", {}, GAUGE, 1.0), Sample("up", {}, GAUGE, 0.0)


class Scripted:
    """A source that returns the given counter values or failures, and then waits."""

    def __init__(self, name, *answers):
        self.name = name
        self._answers = iter(answers)
        self.is_done = threading.Event()

    def ask(self):
        answer = next(self._answers, None)
        if answer is None:
            self.is_done.set()
            threading.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return [counter(answer)]


def counter(value):
    return Sample("c_total", {}, COUNTER, value)


@pytest.fixture
def logged():
    return LogCapture()


@pytest.fixture
def log(logged):
    return structlog.wrap_logger(None, processors=[logged])


def test_an_answer_has_its_samples_what_they_grew_by_and_that_the_source_is_up(log):
    watched = WatchedSource(Scripted("x", 5.0, 7.0), log)
    first, second = watched.ask(), watched.ask()
    assert (first.source, first.samples, first.increases) == ("x", (UP, counter(5)), (None, None))
    assert first.interval_s is None
    assert (second.samples, second.increases) == ((UP, counter(7)), (None, 2.0))
    assert second.interval_s is not None
    assert second.time_ms >= first.time_ms


def test_a_gap_is_said_and_what_grew_meanwhile_is_counted_after_it(log):
    watched = WatchedSource(Scripted("x", 5.0, NoAnswerError("gone"), 9.0), log)
    first, gap, after = (watched.ask() for _ in range(3))
    assert (gap.samples, gap.increases, gap.interval_s) == ((DOWN,), (None,), None)
    assert (after.samples, after.increases) == ((UP, counter(9)), (None, 4.0))
    assert after.interval_s * 1000 >= gap.time_ms - first.time_ms - 1


def test_the_log_is_told_once_that_a_source_is_gone_and_once_that_it_is_back(log, logged):
    watched = WatchedSource(Scripted("x", *[NoAnswerError("gone")] * 3, 1.0, 2.0), log)
    for _ in range(5):
        watched.ask()
    assert [(each["event"], each.get("reason")) for each in logged.entries] == [
        ("source_down", "gone"),
        ("source_up", None),
    ]
    assert {each["source"] for each in logged.entries} == {"x"}


def test_a_source_that_hangs_keeps_nobody_from_taking_what_came_before(log):
    good, hanging = Scripted("good", 1.0), Scripted("hanging")
    watching = SourcePolling([good, hanging], 1.0, log)
    watching.start()
    assert hanging.is_done.wait(DEADLINE_S)
    assert [answer.source for answer in watching.answers()] == ["good"]
    assert list(watching.answers()) == []


def test_a_source_with_a_mistake_ends_the_asking_and_that_is_not_hidden(log, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _args: None)  # do not print it
    watching = SourcePolling([Scripted("x", RuntimeError("a mistake"))], 1.0, log)
    watching.start()
    with pytest.raises(RuntimeError, match=r"^the thread that fetches metrics has stopped$"):
        take_until_the_deadline(watching)


def take_until_the_deadline(watching):
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        list(watching.answers())
