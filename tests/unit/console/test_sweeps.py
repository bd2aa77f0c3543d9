"""Several values of a setting: a run for each, and one table."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from schemas.protocol import RunRequest
from schemas.report import PipelineReport, Report, StageReport, SweepPoint
from schemas.validation_errors import DefinitionError
from services.console.report.ci import markdown
from services.console.report.tables import sweep_tables
from services.console.series import Means, RunOptions, run
from services.runtime.settings import ServiceSettings
from tests.unit.reports import report_of

pytestmark = pytest.mark.unit

WHOLE = Path(__file__).with_name("data") / "report.json"
SWEEP = RunOptions(
    workload="smoke", pipeline="calibration", stages="parse", settings=("delay_ms=1,20,300",)
)


class Carried:
    """Runs whose figures are their setting; requests are kept. valid: of each run in order."""

    def __init__(self, *valid: bool) -> None:
        self.requests: list[RunRequest] = []
        self._valid = iter(valid) if valid else None
        self.published: list[Any] = []

    def means(self) -> Means:
        doubles: dict[str, Any] = {
            "open_stack": lambda _settings, _parts: SimpleNamespace(
                attached=True, up=lambda *_: None, close=lambda _: None, check=lambda: None
            ),
            "at_share": lambda request, _url: request,
            "perform": self._perform,
            "build_report": self._report,
            "summarise": lambda reports, _profile: reports[len(reports) // 2],
            "publish": lambda conclusions, *_: self.published.append(conclusions),
            "make_archives": lambda *_, **__: None,
        }
        return Means(**doubles)

    def _perform(self, request: RunRequest, *_: object) -> SimpleNamespace:
        self.requests.append(request)
        return SimpleNamespace(interrupted=False)

    def _report(self, _url: object, run_id: str) -> Report:
        (pipeline,) = self.requests[-1].pipelines
        delay_ms = pipeline.settings["delay_ms"]
        latency = {"p50": delay_ms, "p99": delay_ms + 1, "max": delay_ms + 2}
        cell = {"verdicts": {"exact": 5}, "latency_ms": {"latest": latency}}
        cell["latency_ms"] |= {"visible": {"p50": 4_000, "p99": 9_000}} if delay_ms > 1 else {}
        valid = next(self._valid) if self._valid else True
        reasons = [] if valid else ["The evaluator was away."]
        rows = [
            {
                "threshold": each,
                "pipeline": "calibration",
                "stage": "parse",
                "value": delay_ms + 1,
                "passed": delay_ms + 1 <= float(each.split()[-1]),
            }
            for each in self.requests[-1].workload.thresholds
        ]
        fields = {"run_id": run_id, "workload": "smoke", "valid": valid, "thresholds": rows}
        fields |= {"invalid_reasons": reasons, "input": {"records": 5}, "environment": {}}
        fields |= {"pipelines": {"calibration": {"stages": {"parse": cell}}}}
        return report_of(fields | {"conclusion": {"clean": True}})


def carried_out(options: RunOptions, data: Path, runs: Carried) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=140)
    code = run(options, ServiceSettings(data=data), console, runs.means())
    return code, console.file.getvalue()


def table_of(text: str, column: str) -> Sequence[Sequence[str]]:
    """The cells of a table's rows, from the one whose header has a column on."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if column in line.split())
    rows = (line.split() for line in lines[start + 2 :])
    return [row for _number, row in zip(count(), iter(lambda: next(rows), []), strict=False)]


def test_every_value_has_a_run_and_a_row(tmp_path: Path) -> None:
    runs, path = Carried(), tmp_path / "report.json"
    code, shown = carried_out(replace(SWEEP, report=path), tmp_path, runs)
    assert code == 0
    assert [each.pipelines[0].settings["delay_ms"] for each in runs.requests] == [1, 20, 300]
    assert table_of(shown, "ledger") == [
        ["1", "calibration", "parse", "1", "2", "3", "–", "–", "0", "clean"],
        ["20", "calibration", "parse", "20", "21", "22", "4000", "9000", "0", "clean"],
        ["300", "calibration", "parse", "300", "301", "302", "4000", "9000", "0", "clean"],
    ]
    points = json.loads(path.read_text())["sweep"]
    assert [each["values"] for each in points] == [{"delay_ms": value} for value in (1, 20, 300)]
    assert [each["run_id"] for each in points] == [each.run_id for each in runs.requests]


def test_repeated_rounds_show_the_median_run_of_each_value_and_how_many_are_valid(
    tmp_path: Path,
) -> None:
    runs = Carried(True, True, True, True, False, True)
    code, shown = carried_out(replace(SWEEP, repeat=2), tmp_path, runs)
    delays = [each.pipelines[0].settings["delay_ms"] for each in runs.requests]
    assert delays == [1, 20, 300, 1, 20, 300]
    assert [row[-3:] for row in table_of(shown, "valid")] == [
        ["2", "of", "2"],
        ["1", "of", "2"],
        ["2", "of", "2"],
    ]
    assert code == 1


def test_a_choice_that_failed_is_told_by_every_form_whichever_is_last(tmp_path: Path) -> None:
    runs, files = Carried(True, False, True), {"report": "r.json", "markdown": "r.md"}
    paths = {name: tmp_path / file for name, file in files.items()}
    code, shown = carried_out(replace(SWEEP, **paths), tmp_path, runs)
    assert code == 1
    wrong = runs.requests[1].run_id
    for text in (shown, paths["markdown"].read_text()):
        assert f"{wrong}: The evaluator was away." in text
        assert "1 of 3 runs were not good." in text
    assert "VALID" not in paths["markdown"].read_text()
    result = json.loads(paths["report"].read_text())
    assert (result["valid"], result["invalid_reasons"]) == (
        False,
        [f"{wrong}: The evaluator was away."],
    )
    outcomes = [each["valid"] for point in result["sweep"] for each in point["outcomes"]]
    assert outcomes == [True, False, True]


def test_a_threshold_that_failed_for_one_choice_is_in_the_report(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    wanted = replace(SWEEP, thresholds=("parse.p99_ms <= 100",), report=path)
    code, shown = carried_out(wanted, tmp_path, Carried())
    assert code == 3
    assert "failed: parse.p99_ms <= 100; calibration parse has 301" in shown
    passed = [row["passed"] for row in json.loads(path.read_text())["thresholds"]]
    assert passed == [True, True, False]


def test_where_nothing_was_judged_nothing_is_clean() -> None:
    part = PipelineReport(stages={"parse": StageReport(verdicts={"exact": 0})})
    fields = {"runs": 1, "valid": 1, "pipelines": {"p": part}}
    points = [SweepPoint(values={"a": a}, run_id="r", **fields) for a in (1, 2)]
    (_, _, rows), _ = sweep_tables(points)
    assert [row[-1] for row in rows] == ["–", "–"]


def test_the_tables_are_in_markdown_too_with_the_settings_that_differ() -> None:
    part = PipelineReport(stages={"parse": StageReport(verdicts={"missing": 2})})
    points = [
        SweepPoint(
            values={"alike": alike, "linger_ms": 5},
            run_id="r",
            runs=1,
            valid=1,
            pipelines={"p": part},
        )
        for alike in (True, False)
    ]
    whole = Report.model_validate_json(WHOLE.read_text())
    text = markdown(whole.model_copy(update={"sweep": points}))
    assert "| true | p | parse | – | – | – | 0 | 2 missing |" in text
    assert "| false | p | – |" in text


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"interleave": True}, "--interleave"),
        ({"profile": "citation"}, "--profile"),
        ({"junit": Path("j.xml")}, "--junit"),
    ],
)
def test_what_needs_one_choice_is_refused(
    tmp_path: Path, more: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DefinitionError, match=f"several values is not for {reason}"):
        carried_out(replace(SWEEP, **more), tmp_path, Carried())


def test_a_value_that_a_pipeline_does_not_take_is_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    runs = Carried()
    with pytest.raises(DefinitionError, match="delay_ms"):
        carried_out(replace(SWEEP, settings=("delay_ms=1,never",)), tmp_path, runs)
    assert not runs.requests
