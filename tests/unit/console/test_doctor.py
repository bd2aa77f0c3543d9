"""Findings of `doctor` for a running stack."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from deploy.local.stack import ServiceStatus
from services.console import doctor
from services.console.doctor import Finding, examine, show
from services.runtime.settings import ServiceSettings

pytestmark = pytest.mark.unit


def test_of_a_stack_the_parts_that_it_has_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single run has no watcher and no gateway, and a port for frames is not a part."""
    for name in ("_java", "_cores", "_memory", "_disk", "_jars", "_wall", "_base_port"):
        monkeypatch.setattr(doctor, name, lambda *_given: Finding(True, "fine"))
    monkeypatch.setattr(doctor, "_engines", lambda _settings: iter(()))
    monkeypatch.setattr(doctor, "query", lambda *_given: [{"n": 0, "why": ""}])
    services = [ServiceStatus("kafka", 1, "ready"), ServiceStatus("store", 2, "not ready")]
    found = list(examine(ServiceSettings(data=tmp_path), True, services))
    assert [one for one in found if one.text != "fine"] == [
        Finding(True, "kafka is ready", f"see {tmp_path}/logs/kafka.log"),
        Finding(False, "store is not ready", f"see {tmp_path}/logs/store.log"),
        Finding(
            True,
            "0 dead letters",
            'see: tidegauge sql "SELECT * FROM tidegauge.dead_letter"',
        ),
    ]


def test_what_is_found_is_shown_as_it_is() -> None:
    out = io.StringIO()
    assert (
        show(Console(file=out, markup=False), iter([Finding(False, "no [/such] tag", "see [red]")]))
        == 1
    )
    assert "no [/such] tag" in out.getvalue()
    assert "see [red]" in out.getvalue()
