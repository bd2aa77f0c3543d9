"""The analysis of the history after a run of a suite."""

from typing import Any

import pytest
import structlog

from services.conductor.suites import analysis
from services.conductor.suites.analysis import TIMEOUT_S, Analysis

pytestmark = pytest.mark.unit


class Process:
    """A process that runs until it is killed."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.killed = False

    def poll(self) -> int | None:
        return -9 if self.killed else None

    def kill(self) -> None:
        self.killed = True

    def wait(self) -> None:
        """Return immediately."""


def test_a_look_that_takes_too_long_is_ended_and_it_is_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0
    monkeypatch.setattr(analysis.subprocess, "Popen", Process)
    monkeypatch.setattr(analysis.time, "monotonic", lambda: now_s)
    look = Analysis()
    look.begin("run-1")
    assert look.goes_on()
    now_s = TIMEOUT_S
    with structlog.testing.capture_logs() as log:
        assert not look.goes_on()
    assert [(one["event"], one["longer_than_s"]) for one in log] == [
        ("changes_not_looked_for", TIMEOUT_S)
    ]
