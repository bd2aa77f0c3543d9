"""Findings of `doctor` for a running stack."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from deploy.local.stack import ServiceStatus
from services.console import doctor
from services.console.doctor import Finding, examine, notify, show
from services.runtime.settings import ServiceSettings
from tests.receiver import receiving

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
            'see: ./tidegauge sql "SELECT * FROM tidegauge.dead_letter"',
        ),
    ]


def test_misspelled_variables_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("INPUT_PARTITION", "KAFKA_HEAP", "INPUT_PARTITIONS", "CONFIG", "BENCH_ROUNDS"):
        monkeypatch.setenv(f"TIDEGAUGE_{name}", "1")
    assert [(one.text, one.advice) for one in doctor._variables()] == [
        ("TIDEGAUGE_INPUT_PARTITION is no setting", "did you mean TIDEGAUGE_INPUT_PARTITIONS?"),
        ("TIDEGAUGE_KAFKA_HEAP is no setting", "did you mean TIDEGAUGE_KAFKA_HEAP_MB?"),
    ]


def test_what_is_found_is_shown_as_it_is() -> None:
    out = io.StringIO()
    assert (
        show(Console(file=out, markup=False), iter([Finding(False, "no [/such] tag", "see [red]")]))
        == 1
    )
    assert "no [/such] tag" in out.getvalue()
    assert "see [red]" in out.getvalue()


def test_a_test_message_is_posted_to_every_webhook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as here, receiving() as away:
        away.answers = [410]
        webhooks = {"here": {"url": here.url}, "away": {"url": away.url, "shape": "slack"}}
        monkeypatch.setenv("TIDEGAUGE_WEBHOOKS", json.dumps(webhooks))
        found = list(notify(ServiceSettings(data=tmp_path)))
        (body,) = here.wait_for(1)
    assert (body["title"], body["kinds"]) == ("Tidegauge: a test message", [])
    assert [(one.good, one.text) for one in found] == [
        (True, "webhook here: a test message was accepted"),
        (False, "webhook away: it answered 410"),
    ]


@pytest.mark.parametrize(
    ("webhooks", "text"),
    [("{}", "no webhook is set"), ('{"one": {"url": "ftp://x"}}', "webhooks: tidegauge: setting")],
)
def test_webhooks_that_are_missing_or_wrong_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, webhooks: str, text: str
) -> None:
    monkeypatch.setenv("TIDEGAUGE_WEBHOOKS", webhooks)
    (found,) = notify(ServiceSettings(data=tmp_path))
    assert not found.good
    assert found.text.startswith(text)
