"""What the collector answers to a command."""

import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from schemas.commands import Prepare
from schemas.events import Ready
from services.collector.collecting import Collecting
from services.collector.processes import StackService
from services.collector.settings import CollectorSettings
from services.runtime.limits import ProcessLimits

pytestmark = pytest.mark.unit


def test_it_is_ready_at_once_and_says_how_many_cores_it_observes(tmp_path: Path) -> None:
    events = Mock()
    collecting = Collecting(CollectorSettings(data=tmp_path), events, Mock())
    collecting.handle_command(Prepare.model_construct(run_id="run-1"))
    ready = Ready(run_id="run-1", machine_cores=os.cpu_count())
    events.publish.assert_called_once_with(ready)


def test_a_stack_on_this_machine_has_the_limits_of_the_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.collector.collecting.limits", lambda: ProcessLimits(1.5, 3, 2))
    services = [{"name": "kafka", "pid": 1}, {"name": "collector", "pid": 2}]
    settings = CollectorSettings(data=tmp_path)
    settings.stack_path.write_text(json.dumps({"services": services}))
    events = Mock()
    Collecting(settings, events, Mock()).handle_command(Prepare.model_construct(run_id="run-1"))
    events.publish.assert_called_once_with(Ready(run_id="run-1", machine_cores=1.5))


def test_beside_a_service_it_says_what_its_container_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.collector.collecting.limits", lambda: ProcessLimits(1.5, 3, 2))
    events = Mock()
    runner = StackService(name="runner", pid=1)
    collecting = Collecting(CollectorSettings(data=tmp_path), events, beside=runner)
    collecting.handle_command(Prepare.model_construct(run_id="run-1"))
    ready = Ready(run_id="run-1", service="sampler", pipeline_cores=1.5)
    events.publish.assert_called_once_with(ready)
