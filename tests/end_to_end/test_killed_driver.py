"""The driver of a pipeline is killed with SIGKILL in the middle of a run."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.command import ROOT
from tests.end_to_end.workload_files import NEVER_LATE, changed_workload
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.faults

BASE_PORT = free_base_port()
DEADLINE_S = 400


def driver_of(pipeline: str, data: Path) -> psutil.Process | None:
    """The driver process of this stack, if it is running."""
    for process in psutil.process_iter(["cmdline"]):
        text = " ".join(process.info["cmdline"] or ())
        wanted = ("services.spark_pipeline.driver", f"{data}/", f"/{pipeline}.plan.json")
        if all(part in text for part in wanted):
            return process
    return None


@pytest.mark.parametrize("pipeline", ["spark-realtime", "spark-microbatch"])
def test_nothing_is_lost_and_the_report_says_what_it_cost(pipeline: str, tmp_path: Path) -> None:
    path, output = tmp_path / "report.json", tmp_path / "output.txt"
    command = [
        *(str(ROOT / "tidegauge"), "run"),
        str(changed_workload("latency", tmp_path / "never-late.toml", NEVER_LATE)),
        *("--pipeline", pipeline, "--rate", "100", "--stages", "1,2"),
        *("--warm-up", "3", "--duration", "30", "--report", str(path)),
    ]
    environment = {"TIDEGAUGE_DATA": str(tmp_path / "stack"), "TIDEGAUGE_BASE_PORT": str(BASE_PORT)}
    with output.open("wb") as out:
        run = subprocess.Popen(command, env=os.environ | environment, stdout=out, stderr=out)
    try:
        end = time.monotonic() + DEADLINE_S
        while "measuring, 2" not in output.read_text():
            assert time.monotonic() < end, output.read_text()
            assert run.poll() is None, output.read_text()
            time.sleep(0.1)  # poll interval
        victim = driver_of(pipeline, tmp_path / "stack")
        assert victim is not None
        victim.send_signal(signal.SIGKILL)
        run.wait(DEADLINE_S)
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGINT)
            run.wait(60)
    text, report = output.read_text(), json.loads(path.read_text())
    print(text[-3000:])
    found = report["pipelines"][pipeline]
    assert report["valid"], text
    (restart,) = found["restarts"]
    assert restart["outage_s"] > 0
    totals = {
        verdict: sum(cell["verdicts"][verdict] for cell in found["stages"].values())
        for verdict in ("missing", "wrong", "unexpected", "late", "duplicate")
    }
    assert totals == {
        "missing": 0,
        "wrong": 0,
        "unexpected": 0,
        "late": restart["late"],
        "duplicate": restart["duplicate"],
    }
    sentence = f"{pipeline} was killed and unavailable for {restart['outage_s']:.1f} s."
    assert sentence in " ".join(text.split())
