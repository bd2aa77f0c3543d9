"""The shortest way to see that everything works."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.command import CommandLine

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

BASE_PORT = 21_370


def test_spark_and_a_program_of_ones_own_are_measured_on_the_same_input(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    names = ("spark-realtime", "external-python")
    tidegauge = CommandLine(tmp_path / "stack", BASE_PORT)
    try:
        done = tidegauge("run", "smoke", "--pipeline", ",".join(names), "--report", str(path))
    finally:
        tidegauge("down")  # where the run was given up it has left its stack
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    # 100 records/s for 5 s; each is parsed once.
    for name in names:
        verdicts = report["pipelines"][name]["stages"]["parse"]["verdicts"]
        assert verdicts["exact"] == sum(verdicts.values()) == 500
    assert "tumbling" in report["pipelines"]["spark-realtime"]["stages"]
    assert "tumbling" not in report["pipelines"]["external-python"]["stages"]
