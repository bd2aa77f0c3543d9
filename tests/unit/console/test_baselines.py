"""The baseline of `run --baseline`: read early, checked, and shown in every output."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from analysis.comparability import identity_of
from analysis.thresholds import judged
from schemas.protocol import VERDICTS
from schemas.report import BaselineComparison, Figures
from schemas.threshold import parse_threshold
from schemas.validation_errors import DefinitionError
from services.console import series
from services.console.arguments import EXIT_THRESHOLD
from services.console.choosing import Overrides, with_overrides
from services.console.report import ci
from services.console.report.words import baseline_sentence
from services.console.series import Baseline, check_baseline, with_baseline
from tests.unit.analysis.test_baseline import QUIET, a_report, repeated
from tests.unit.reports import part_of, report_of
from tests.unit.requests import a_request

pytestmark = pytest.mark.unit
COMPARED = ["join.p99_ms <= baseline"]


def against_baseline(
    report: dict[str, Any], baseline: Baseline, required: bool = False
) -> dict[str, Any]:
    return series.against_baseline(report_of(report), baseline, required).as_json()


def _exit_code(reports: list[dict[str, Any]], shown: dict[str, Any]) -> int:
    return series.exit_code([*map(report_of, reports)], report_of(shown))


def junit(report: dict[str, Any]) -> bytes:
    return ci.junit(report_of(report))


def baseline_line(compared: dict[str, Any]) -> str:
    return baseline_sentence(part_of(BaselineComparison, compared))


def written(folder: Path, report: dict[str, Any]) -> str:
    path = folder / "before.json"
    path.write_text(json.dumps(report))
    return str(path)


@pytest.mark.parametrize("thresholds", [[], COMPARED])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "[" * 100_000,
        "{}",
        '{"input": {}, "pipelines": {"a": 5}}',
        '{"input": {}, "pipelines": {"a": 5}, "valid": true, "run_id": "x"}',
    ],
    ids=["empty", "list", "deep", "object", "keys missing", "no figures"],
)
def test_a_baseline_that_is_no_report_is_named(
    tmp_path: Path, text: str, thresholds: list[str]
) -> None:
    path = tmp_path / "before.json"
    path.write_text(text)
    given = with_overrides(a_request().workload, Overrides(thresholds=thresholds))
    with pytest.raises(DefinitionError, match=r"--baseline: .*before\.json is not a JSON report"):
        with_baseline(given, {"a": ("join",)}, Baseline(str(path), ""))


def test_a_baseline_that_is_missing_is_named_without_thresholds(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"none\.json cannot be read: No such file"):
        with_baseline(
            a_request().workload, {"a": ("join",)}, Baseline(str(tmp_path / "none.json"), "")
        )


def test_a_baseline_without_a_name_is_no_missing_comparison() -> None:
    with pytest.raises(DefinitionError, match=r"^--baseline: the name of a file or .* is missing"):
        Baseline("", "").check()


def test_a_threshold_on_a_baseline_needs_one() -> None:
    workload = with_overrides(
        a_request().workload, Overrides(thresholds=("join.p99_ms <= 1.1 * baseline",))
    )
    with pytest.raises(DefinitionError, match=r"baseline' needs --baseline\.$"):
        check_baseline(workload, None)
    check_baseline(workload, Baseline("before.json", ""))


def test_a_run_that_is_not_valid_is_no_baseline(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="is not valid"):
        Baseline(written(tmp_path, a_report(valid=False)), "").report  # noqa: B018


def test_a_file_needs_no_suffix(tmp_path: Path) -> None:
    path = tmp_path / "before"
    path.write_text(json.dumps(a_report()))
    assert Baseline(str(path), "").report.run_id == "run-1"
    assert not Baseline("20261125-022513-12e6", "").is_file


def test_slower_runs_are_shown_and_are_a_failed_threshold(tmp_path: Path) -> None:
    base = written(tmp_path, repeated(QUIET))
    found = against_baseline(repeated([x + 10 for x in QUIET]), Baseline(base, ""))
    assert _exit_code([], found) == EXIT_THRESHOLD
    stages = found["pipelines"]["one"]["stages"]
    stages["join"]["verdicts"] = dict.fromkeys(VERDICTS, 0)
    told = junit(found | {"invalid_reasons": [], "thresholds": []}).decode()
    assert told.count("is not worse than in the baseline") == 3
    assert told.count("30 -&gt; 40") == 6


@pytest.mark.parametrize(
    "value",
    ['"high"', "NaN", "[1]", "1e999", '31.0, "intervals": {"p99": [1]}'],
    ids=["text", "nan", "list", "huge", "one bound"],
)
def test_a_figure_that_is_no_number_is_refused_before_the_run(tmp_path: Path, value: str) -> None:
    path = tmp_path / "before.json"
    path.write_text(json.dumps(repeated(QUIET)).replace("31.0", value))
    with pytest.raises(DefinitionError, match="is not a JSON report"):
        Baseline(str(path), "").report  # noqa: B018


def cases_of(found: dict[str, Any]) -> dict[str, str]:
    """What JUnit says about each test case of a comparison."""
    stages = found["pipelines"]["one"]["stages"]
    stages["join"]["verdicts"] = dict.fromkeys(VERDICTS, 0) | {"exact": 1}
    root = ElementTree.fromstring(junit(found | {"invalid_reasons": [], "thresholds": []}))
    cases = [one for one in root.iter("testcase") if "baseline" in one.get("name", "")]
    assert root[0].get("skipped") == str(len(list(root.iter("skipped"))))
    return {one.get("name", ""): one[0].tag if len(one) else "passed" for one in cases}


OTHER = {"workload": "latency", "rate": "400 records/s", "cores": "4"}


def test_a_baseline_that_was_not_compared_is_a_skipped_test_case(tmp_path: Path) -> None:
    base = written(tmp_path, repeated(QUIET, identity=OTHER))
    found = against_baseline(repeated(QUIET), Baseline(base, ""))
    assert cases_of(found) == {"compared with the baseline": "skipped"}
    assert "cores 2, not 4" in junit_skipped(found)
    assert baseline_line(found["baseline"]) == "Skipped, not passed"
    assert found["baseline"]["said"].startswith("Not compared")
    assert _exit_code([], found) == 0


def junit_skipped(found: dict[str, Any]) -> str:
    root = ElementTree.fromstring(junit(found | {"invalid_reasons": [], "thresholds": []}))
    return " ".join(one.get("message", "") for one in root.iter("skipped"))


@pytest.mark.parametrize(
    "now",
    [
        a_report(40.0),
        a_report(40.0, within=None),
        repeated([x + 10 for x in QUIET], steady=False),
    ],
    ids=["too few runs", "too little data", "not steady"],
)
def test_the_figures_of_an_undecided_comparison_are_skipped(tmp_path: Path, now: Any) -> None:
    found = against_baseline(now, Baseline(written(tmp_path, repeated(QUIET)), ""))
    assert set(cases_of(found).values()) == {"skipped"}
    assert len(cases_of(found)) == 3
    assert "Skipped, not passed" in baseline_line(found["baseline"])


def test_a_demanded_comparison_that_decides_nothing_fails(tmp_path: Path) -> None:
    base = Baseline(written(tmp_path, repeated(QUIET, identity=OTHER)), "")
    found = against_baseline(repeated(QUIET), base, required=True)
    assert _exit_code([], found) == EXIT_THRESHOLD
    assert cases_of(found)["the comparison with the baseline decides"] == "failure"


def test_a_demanded_comparison_that_decides_passes(tmp_path: Path) -> None:
    base = Baseline(written(tmp_path, repeated(QUIET)), "")
    found = against_baseline(repeated(QUIET), base, required=True)
    assert _exit_code([], found) == 0
    assert set(cases_of(found).values()) == {"passed"}


def on_cores(cores: int) -> Any:
    environment = {"processor": "A", "cores": cores, "memory_bytes": 8_000_000_000}
    return a_request("one").model_copy(update={"environment": environment})


@pytest.mark.parametrize("line", ["join.p99_ms <= 100 * baseline", "*.p99_ms <= baseline abort"])
def test_a_threshold_on_a_baseline_of_another_machine_does_not_pass(
    tmp_path: Path, line: str
) -> None:
    identity = identity_of(json.loads(on_cores(4).model_dump_json()))
    base = Baseline(written(tmp_path, repeated(QUIET, identity=identity)), "")
    given = with_overrides(a_request().workload, Overrides(thresholds=[line]))
    measured = {"one": ("join",)}
    stages = {"join": {"latency_ms": {"latest": {"p99": 1.0}}}}
    figures = Figures.model_validate({"pipelines": {"one": {"stages": stages}}})

    (text,) = with_baseline(given, measured, base, on_cores(2)).thresholds
    (row,) = judged([parse_threshold(text)], figures)
    assert not row.passed
    assert "not comparable: cores 2, not 4" in row.threshold

    (text,) = with_baseline(given, measured, base, on_cores(4)).thresholds
    (row,) = judged([parse_threshold(text)], figures)
    assert row.passed
