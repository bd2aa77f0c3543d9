"""Findings of `doctor` for a running stack."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from deploy.local.stack import ServiceStatus
from services.console import doctor
from services.console.doctor import Finding, notify, running_parts, show
from services.readmodel.runs import DeadLetters
from services.runtime.limits import ProcessLimits
from services.runtime.settings import ServiceSettings
from tests.receiver import receiving

pytestmark = pytest.mark.unit


def test_of_a_stack_the_parts_that_it_has_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single run has no watcher and no gateway, and a port for frames is not a part."""
    monkeypatch.setattr(doctor, "dead_letters", lambda _url: DeadLetters(0, ""))
    services = [ServiceStatus("kafka", 1, "ready"), ServiceStatus("store", 2, "not ready")]
    assert list(running_parts(ServiceSettings(data=tmp_path), services)) == [
        Finding(True, "kafka is ready", f"see {tmp_path}/logs/kafka.log"),
        Finding(False, "store is not ready", f"see {tmp_path}/logs/store.log"),
        Finding(
            True,
            "0 dead letters",
            'see: ./tidegauge sql "SELECT * FROM tidegauge.dead_letter"',
        ),
    ]


GB = 1_000_000_000


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (
            ProcessLimits(16, 64 * GB, 9 * GB),
            (True, "16 cores, load 3.0", True, "9.0 GB of memory free"),
        ),
        (
            ProcessLimits(2, 3 * GB, 2 * GB, "quota"),
            (
                True,
                "2 cores, load 3.0 (of 16: the quota of its control group allows no more)",
                False,
                "2.0 GB of memory free of the limit of 3.0 GB",
            ),
        ),
        (
            ProcessLimits(1, 64 * GB, 4 * GB, "affinity"),
            (
                False,
                "1 core, load 3.0 (of 16: the processor affinity allows no more)",
                True,
                "4.0 GB of memory free",
            ),
        ),
        (
            ProcessLimits(1.5, 64 * GB, 4 * GB, "quota"),
            (
                False,
                "1.5 cores, load 3.0 (of 16: the quota of its control group allows no more)",
                True,
                "4.0 GB of memory free",
            ),
        ),
    ],
    ids=["all", "a container of 2 cores and 3 GB", "one processor", "a part of a core"],
)
def test_cores_and_memory_are_those_that_may_be_used(
    monkeypatch: pytest.MonkeyPatch, allowed: ProcessLimits, expected: tuple[object, ...]
) -> None:
    monkeypatch.setattr(doctor, "limits", lambda: allowed)
    monkeypatch.setattr(doctor, "machine", lambda: ProcessLimits(16, 64 * GB, 40 * GB))
    monkeypatch.setattr("os.getloadavg", lambda: (3.0, 2.0, 1.0))
    cores, memory = doctor._cores(), doctor._memory()
    assert (cores.good, cores.text, memory.good, memory.text) == expected


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
