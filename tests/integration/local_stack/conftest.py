"""Folder, ports and test doubles for one stack, none of which may remain after a test."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.local import processes
from deploy.local.parts import StackPart, service
from deploy.local.processes import marked
from deploy.local.stack import Stack
from deploy.local.state import StateFile
from services.runtime.settings import ServiceSettings
from tests.integration.kafka_broker import free_base_port
from tests.integration.local_stack.stand_in import DOUBLE


@pytest.fixture
def settings(tmp_path: Path) -> ServiceSettings:
    return ServiceSettings(data=tmp_path / "data", base_port=free_base_port())


@pytest.fixture
def double(tmp_path: Path, settings: ServiceSettings) -> Callable[..., StackPart]:
    script = tmp_path / "double.py"
    script.write_text(DOUBLE)

    def make(name: str, behaviour: str = "ready", after: tuple[str, ...] = ()) -> StackPart:
        command = (sys.executable, str(script), str(settings.port(name)), behaviour)
        return service(name, command, after)

    return make


@pytest.fixture(autouse=True)
def little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The double's child never ends by itself: do not wait long for it."""
    monkeypatch.setattr(processes, "LEFTOVER_GRACE_S", 0.2)


@pytest.fixture(autouse=True)
def nothing_is_left(settings: ServiceSettings) -> Iterator[None]:
    """Assert that, whatever a test did, its data folder has no stack and no process afterwards."""
    yield
    found = StateFile(settings.data).read()
    Stack(settings).down()
    assert found is None or marked(found.stack_id) == ()
