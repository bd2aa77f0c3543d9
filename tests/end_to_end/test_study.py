"""A study is interrupted, resumes with the unfinished runs, and writes a page with every run's
id."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.command import ROOT, CommandLine
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.end_to_end

BASE_PORT = free_base_port()
DEADLINE_S = 400
STUDY = f"""
name = "mine"
title = "A loop, twice"
question = "How late is a copy, and how late a window?"
source = "own"
method = "By two short runs."
limits.tiny = {{ tries = 3, minutes = 10 }}

[[systems]]
name = "Loop"
pipeline = "{ROOT}/examples/toy_engine/pipeline.toml"

[[systems]]
name = "Other"
pipeline = "no-such-pipeline"
paper = "Other"

[[experiments]]
name = "latency"
title = "Latency"
asks = "How late?"
paper = "page 1"
workload = "smoke"
stages = ["parse", "tumbling"]
figures = ["p50_ms", "p99_ms"]
scales.tiny = {{ apart = true }}

[[experiments.paper_values]]
system = "Other"
stage = "parse"
where = "page 1"
values = {{ p50_ms = 2 }}
"""


def notes(data: Path) -> dict[str, list[dict[str, Any]]]:
    """The stored notes of the study."""
    path = data / "studies" / "mine-tiny.json"
    found: dict[str, list[dict[str, Any]]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def test_a_study_that_is_interrupted_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGAUGE_ENGINES", str(ROOT / "examples"))
    (tmp_path / "mine.toml").write_text(STUDY)
    tidegauge = CommandLine(tmp_path / "data", BASE_PORT)
    study = ("study", str(tmp_path / "mine.toml"), "--scale", "tiny", "--folder", str(tmp_path))
    output = tmp_path / "output.txt"
    with tidegauge.stack():
        begun = tidegauge.begin(output, *study)
        try:
            end_s = time.monotonic() + DEADLINE_S
            while not notes(tidegauge.data):
                assert time.monotonic() < end_s, output.read_text()
                assert begun.poll() is None, output.read_text()
                time.sleep(0.1)  # poll interval
        finally:
            begun.send_signal(signal.SIGINT)
            code = begun.wait(DEADLINE_S)
        assert code == 130, output.read_text()
        ((first, done),) = notes(tidegauge.data).items()
        assert [note["valid"] for note in done] == [True]
        again = tidegauge(*study)
    assert again.returncode == 0, again.stdout + again.stderr
    assert notes(tidegauge.data)[first] == done
    runs = [note["run_id"] for own in notes(tidegauge.data).values() for note in own]
    assert len(notes(tidegauge.data)) == 2
    page = (tmp_path / "mine-tiny.html").read_text()
    assert all(f"<td>{run}</td>" in page for run in runs)
    text = (tmp_path / "mine-tiny.md").read_text()
    assert "| Other | parse |  | 2 |  |  | page 1 |" in text  # only the paper has figures
    assert "There is no pipeline 'no-such-pipeline'" in text
