"""A run publishes what it kills before the kill, and concludes without the broker."""

import signal
from typing import Any
from unittest.mock import Mock

import pytest

from schemas.events import Killed
from schemas.workload import Kill
from services.conductor import run
from services.conductor.settings import ConductorSettings
from services.runtime.kafka import KafkaUnavailableError
from tests.unit.requests import a_request

pytestmark = pytest.mark.unit


def a_run(events: Any, *processes: Any, bus: Any = None) -> run.Run:
    """A run that kills the broker at once, which has these processes."""
    bus = bus or Mock(poll=Mock(return_value=[]))
    request = a_request()
    workload = request.workload.model_copy(update={"kills": (Kill(target="broker"),)})
    request = request.model_copy(update={"workload": workload})
    return run.Run(
        request,
        ConductorSettings(),
        events,
        lambda: "",
        bus=bus,
        find_processes=lambda *_: list(processes),
    )


def test_a_kill_is_published_before_it_happens() -> None:
    happened: list[Any] = []
    events, broker = Mock(), Mock(pid=7)
    events.publish = lambda event: happened.append((event.name, event.detail))
    broker.send_signal = happened.append
    a_run(events, broker)._kill(0)
    assert happened == [
        (Killed.name, {"target": "broker", "pids": [7], "said": "kill of the broker"}),
        signal.SIGKILL,
    ]


def test_a_kill_without_a_target_is_not_published() -> None:
    events = Mock()
    with pytest.raises(run.RunEndedError, match="There is no broker on this machine to kill"):
        a_run(events)._kill(0)
    events.lifecycle.assert_not_called()


def test_a_broker_that_is_gone_at_the_end_does_not_end_the_conductor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bus = Mock(
        poll=Mock(return_value=[]), rest=Mock(side_effect=KafkaUnavailableError("No broker."))
    )
    found = a_run(Mock(), bus=bus)
    for step in ("_prepare", "_load", "_drain"):
        monkeypatch.setattr(found, step, Mock())
    assert found.perform().reasons[0] == "No broker."
