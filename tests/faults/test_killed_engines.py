"""Kills every engine with SIGKILL during a run, and records late, repeated and lost outputs and the
duration of the outage. TIDEGAUGE_KILLED_ENGINES names a file for the figures, from which
killed_engines.py writes the table of docs/failures.md."""

import json
import os
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
from tests.faults.killed_engines import RESULTS, Row, keep, measured_pipelines
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.faults

# Shorter, and tolerant of a slow machine: correctness is tested, durations are only recorded.
CHANGES = {
    "max_send_delay_p99_ms = 200": "max_send_delay_p99_ms = 10_000",
    "at_s = 15": "at_s = 10",
    "kills =": "keep_up_s = 4\nkills =",
    "measure_s = 75": "measure_s = 45",
}
# Time between consecutive outputs, if the later one came after the kill.
GAP = """
    SELECT max(gap_ms) / 1000 AS gap_s FROM (
        SELECT stage, appended_ms, appended_ms - lagInFrame(appended_ms, 1, appended_ms) OVER
            (PARTITION BY stage ORDER BY appended_ms) AS gap_ms
        FROM tidegauge.results_pairs WHERE run_id = '{run_id}'
    ) WHERE appended_ms > (
        SELECT toUnixTimestamp64Milli(min(time)) FROM tidegauge.results_lifecycle
        WHERE run_id = '{run_id}' AND event = 'killed'
    ) HAVING count() > 0
"""
# Outputs repeated after a kill are counted again by the windows after them.
REPEATS_INTO_WINDOWS = ("spark-realtime-via-topics",)


@pytest.mark.parametrize("name", measured_pipelines())
def test_an_engine_that_resumes_loses_nothing_and_any_other_ends_the_run(
    name: str, tmp_path: Path
) -> None:
    engine = load_engine(load_pipeline(name).engine)
    try:
        install_engines([engine], ServiceSettings(), print)
    except InstallError as error:
        pytest.skip(str(error))
    tidegauge = CommandLine(tmp_path / "stack", free_base_port())
    workload = changed_workload("failure", tmp_path / "failure.toml", CHANGES)
    path = tmp_path / "report.json"
    done = tidegauge("run", str(workload), "--pipeline", name, "--report", str(path))
    assert path.exists(), done.stdout + done.stderr
    report = json.loads(path.read_text())
    row = row_of(name, report, gap_s(tidegauge, report["run_id"]))
    print(row)
    if given := os.environ.get(RESULTS):
        keep(Path(given), row)
    if not engine.spec.processes.resumes:
        assert not report["valid"]
        assert report["invalid_reasons"][-1].startswith(f"pipeline:{name} failed")
        return
    assert report["valid"], done.stdout
    assert row.out_s is not None
    for stage, cell in report["pipelines"][name]["stages"].items():
        if name not in REPEATS_INTO_WINDOWS or stage != "tumbling":
            assert cell["verdicts"]["exact"] > 0
            lost = [cell["verdicts"][verdict] for verdict in ("missing", "wrong", "unexpected")]
            assert lost == [0, 0, 0], stage


def gap_s(tidegauge: CommandLine, run_id: str) -> float | None:
    """The longest time without an output of a stage that ended after the kill; None if there were
    no outputs after it."""
    done = tidegauge("sql", GAP.format(run_id=run_id), "--format", "json")
    assert done.returncode == 0, done.stderr
    return float(json.loads(done.stdout)["gap_s"]) if done.stdout.strip() else None


def row_of(name: str, report: dict[str, Any], out_s: float | None) -> Row:
    """The figures of a report, summed over all stages."""
    found = report["pipelines"][name]
    totals = {
        verdict: sum(cell["verdicts"][verdict] for cell in found["stages"].values())
        for verdict in ("exact", "late", "duplicate", "missing", "wrong", "unexpected")
    }
    return Row(
        pipeline=name,
        engine=load_pipeline(name).engine,
        run_id=report["run_id"],
        stages=tuple(found["stages"]),
        out_s=out_s,
        reason="" if report["valid"] else report["invalid_reasons"][-1],
        **totals,
    )
