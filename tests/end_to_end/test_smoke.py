"""The shortest way to see that everything works."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.command import CommandLine

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

BASE_PORT = 21_370


def test_the_workload_smoke_runs_through(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    done = CommandLine(tmp_path / "stack", BASE_PORT)("run", "smoke", "--report", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    # 100 records/s for 5 s; each is parsed once.
    verdicts = report["pipelines"]["spark-realtime"]["stages"]["parse"]["verdicts"]
    assert verdicts["exact"] == 500
