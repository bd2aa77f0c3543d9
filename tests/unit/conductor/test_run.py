"""A run publishes what it kills before the kill, and concludes without the broker."""

import signal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from schemas.events import Killed
from schemas.workload import Kill, KillTarget
from services.conductor import run
from services.conductor.settings import ConductorSettings
from services.runtime.kafka import KafkaUnavailableError
from tests.unit.requests import a_request

pytestmark = pytest.mark.unit


def a_run(
    events: Any,
    *processes: Any,
    bus: Any = None,
    target: KillTarget = "broker",
    settings: ConductorSettings | None = None,
) -> run.Run:
    """A run that kills the broker at once, which has these processes; or has another fault."""
    bus = bus or Mock(poll=Mock(return_value=[]))
    request = a_request()
    workload = request.workload.model_copy(update={"kills": (Kill(target=target),)})
    request = request.model_copy(update={"workload": workload})
    return run.Run(
        request,
        settings or ConductorSettings(),
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


def faulty_record(events: Mock, data: Path, bus: Mock) -> run.Run:
    """A run in which a record throws at once, which is awaited for a second."""
    settings = ConductorSettings(data=data, restart_timeout_s=1)
    return a_run(events, Mock(pid=7), bus=bus, target="record", settings=settings)


def test_a_fault_of_a_record_is_over_when_its_program_has_removed_the_file(tmp_path: Path) -> None:
    removed: list[Path] = []

    def program(_timeout_s: float) -> list[Any]:
        removed.extend(tmp_path.glob("runs/*/*.raise"))
        for file in removed:
            file.unlink()
        return []

    events = Mock()
    begun = faulty_record(events, tmp_path, Mock(poll=program))
    (tmp_path / "runs" / begun.request.run_id).mkdir(parents=True)
    begun._kill(0)
    names = {f"{pipeline.name}.raise" for pipeline in begun.request.pipelines}
    assert {file.name for file in removed} == names
    (event,) = (call.args[0] for call in events.publish.call_args_list)
    assert event.detail == {"target": "record", "pids": [7], "said": "exception at a record"}


def test_a_run_ends_if_no_program_throws_at_a_record(tmp_path: Path) -> None:
    begun = faulty_record(Mock(), tmp_path, Mock(poll=Mock(return_value=[])))
    with pytest.raises(run.RunEndedError, match=r"no exception at a record on this machine: .*No "):
        begun._kill(0)
    (tmp_path / "runs" / begun.request.run_id).mkdir(parents=True)
    with pytest.raises(run.RunEndedError, match="After 1 s there was no exception at a record, "):
        begun._kill(0)


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
