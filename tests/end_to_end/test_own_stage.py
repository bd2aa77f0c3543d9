"""An additional stage of traffic with custom code, in a folder outside the project."""

import json
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.command import ROOT, CommandLine

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(400)]

BASE_PORT = 22_070
STAGE = """
[[stages]]
name = "fast"
kind = "filter"
reads = ["parse"]
record = "output_fast"
key = "measurement_id"
where = [{ column = "speed_km_per_hour", operator = ">", value = 90 }]
"""
OWN = """
from pyspark.sql import functions as F


def fast(rows, stage):
    return rows.where(F.col("speed_km_per_hour") * 2 > 180)
"""
PIPELINE = """
name = "own"
summary = "-"
engine = "spark"
mode = "micro-batch"
implementation = "own"
incomplete_windows = "withhold"
"""


def more_traffic(folder: Path) -> Path:
    """A copy of the domain with a sixth stage."""
    shutil.copytree(ROOT / "domains" / "traffic", folder)
    text = (folder / "domain.toml").read_text()
    (folder / "domain.toml").write_text(text.replace('"traffic"', '"more_traffic"') + STAGE)
    schema = json.loads((folder / "output_parse.v1.avsc").read_text()) | {"name": "output_fast"}
    (folder / "output_fast.v1.avsc").write_text(json.dumps(schema))
    (folder / "spark.py").write_text(OWN)
    return folder


def test_code_for_a_sixth_stage_is_judged_by_its_table_and_schema(tmp_path: Path) -> None:
    domain = more_traffic(tmp_path / "more_traffic")
    (tmp_path / "own.toml").write_text(PIPELINE)
    tidegauge = CommandLine(tmp_path / "data", BASE_PORT)
    done = tidegauge(
        *("run", "smoke", "--domain", str(domain), "--stages", "parse,fast"),
        *("--pipeline", str(tmp_path / "own.toml"), "--report", str(tmp_path / "report.json")),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "report.json").read_text())
    assert (found["domain"], set(found["pipelines"])) == ("more_traffic", {"own"})
    stages = found["pipelines"]["own"]["stages"]
    parse, fast = (stages[name]["verdicts"] for name in ("parse", "fast"))
    assert (parse["exact"], sum(parse.values())) == (500, 500)
    assert 0 < fast["exact"] < 250
    assert sum(fast.values()) == fast["exact"]
