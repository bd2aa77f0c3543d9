"""Programs of engines are made to fail: they throw once at a record, or the disk of their state is
full for some seconds. Nothing is lost, and the report tells the outage."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.local.engines import install_engines
from deploy.local.install import InstallError
from services.definitions.engines import load_engine
from services.definitions.pipelines import load_pipeline
from services.runtime.settings import ServiceSettings
from tests.end_to_end.command import CommandLine
from tests.end_to_end.workload_files import changed_workload
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.faults

# Shorter, and tolerant of a slow machine: correctness is tested, durations are only recorded.
CHANGES = {
    "max_send_delay_p99_ms = 200": "max_send_delay_p99_ms = 30_000",
    'warm_up_s = "auto"': "warm_up_s = 5",
    "measure_s = 75": "measure_s = 30",
    "deadline_ms = 60_000": "deadline_ms = 120_000",
    "give_up_ms = 60_000": "give_up_ms = 120_000",
    "rate_per_second = 200": "rate_per_second = 100",
}
KILLS = 'kills = [{ target = "driver", at_s = 15 }]'
LOST = ("missing", "wrong", "unexpected")
OUTAGE_MS = 2_000
SETTINGS = {"calibration": ("--set", f"outage_ms={OUTAGE_MS}")}
Measure = Callable[..., dict[str, Any]]


@pytest.fixture
def measure(tmp_path: Path) -> Measure:
    """Measures a pipeline with a fault 5 s into the measured phase; the run must be valid, without
    a lost or wrong output. Returns what the report has of the pipeline."""

    def run(name: str, fault: str, *more: str) -> dict[str, Any]:
        try:
            install_engines([load_engine(load_pipeline(name).engine)], ServiceSettings(), print)
        except InstallError as error:
            pytest.skip(str(error))
        kills = f"keep_up_s = 4\nkills = [{{ {fault}, at_s = 5 }}]"
        workload = changed_workload("failure", tmp_path / "w.toml", CHANGES | {KILLS: kills})
        tidegauge = CommandLine(tmp_path / "stack", free_base_port())
        arguments = (str(workload), "--pipeline", name, *more)
        done, report = tidegauge.measured(tmp_path / "report.json", *arguments)
        assert report["valid"], done.stdout + done.stderr
        found: dict[str, Any] = report["pipelines"][name]
        print(name, found["restarts"])
        for stage, cell in found["stages"].items():
            print(stage, cell["verdicts"], cell["recovery"])
            assert cell["verdicts"]["exact"] > 0
            assert [cell["verdicts"][verdict] for verdict in LOST] == [0, 0, 0], stage
        return found

    return run


@pytest.mark.parametrize(
    ("name", "restarts"),
    [
        ("calibration", 0),
        ("kafka-streams", 1),
        ("flink", 1),
        ("flink-cluster", 0),  # Flink restarts the tasks
        ("spark-microbatch", 1),
        ("spark-realtime", 1),
        ("bytewax", 1),
        ("quix", 1),
    ],
)
def test_an_exception_at_a_record_happens_once_and_no_output_is_lost(
    measure: Measure, name: str, restarts: int
) -> None:
    found = measure(name, 'target = "record"', *SETTINGS.get(name, ()))
    assert len(found["restarts"]) == restarts
    for stage, cell in found["stages"].items():
        (recovery,) = cell["recovery"]
        assert recovery["event"] == "exception at a record", stage
        if name == "calibration":
            assert recovery["outage_s"] >= OUTAGE_MS / 1000, stage
            assert cell["verdicts"]["duplicate"] == 0, stage


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("kafka-streams", ("--set", "store=rocksdb")),
        ("flink", ("--set", "checkpoint_interval_ms=1000")),
        ("spark-microbatch", ()),
    ],
)
def test_while_the_disk_with_the_state_is_full_a_program_may_fail_and_no_output_is_lost(
    measure: Measure, name: str, more: tuple[str, ...]
) -> None:
    found = measure(name, 'target = "disk", for_s = 6', *more)
    for stage, cell in found["stages"].items():
        (recovery,) = cell["recovery"]
        assert recovery["event"] == "filling of the disk for 6 s", stage
