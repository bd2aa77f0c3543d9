"""Comparison of a report with a baseline: by runs if there are enough, else by intervals."""

from statistics import median
from typing import Any

import pytest

from analysis import baseline
from analysis.comparability import doubts_of
from tests.unit.reports import report_of

pytestmark = pytest.mark.unit
QUIET = [30.0, 31.0, 29.0, 30.5, 30.0]


def compared(report: dict[str, Any], other: dict[str, Any], name: str) -> dict[str, Any]:
    return baseline.compared(report_of(report), report_of(other), name).as_json()


def a_report(p99: float = 30.0, within: float | None = 1.0, **changes: Any) -> dict[str, Any]:
    """One run of one pipeline and stage. within: half of the interval of every figure."""
    figures = dict.fromkeys(("p50", "p95", "p99"), p99)
    bounds = None if within is None else [p99 - within, p99 + within]
    latest = figures | {"intervals": dict.fromkeys(figures, bounds)}
    return {
        "run_id": "run-1",
        "input": {},
        "workload": "latency",
        "domain": "traffic",
        "valid": True,
        "steady": True,
        "conclusion": {},
        "identity": {"workload": "latency", "rate": "400 records/s", "cores": "2"},
        "pipelines": {"one": {"stages": {"join": {"latency_ms": {"latest": latest}}}}},
    } | changes


def repeated(values: list[float], **changes: Any) -> dict[str, Any]:
    """Several runs whose figures all have these values."""
    figures = dict.fromkeys(("p50", "p95", "p99"), medians(values))
    stages = {"join": {"latency_ms": {"latest": figures}}}
    found = a_report(values[0], **changes)
    doubts = doubts_of(report_of(found))
    run = {"run_id": "run-1", "valid": True, "invalid_reasons": [], "clean": True}
    repetition = {
        "runs": [run | {"doubts": doubts}],
        "median_run": "run-1",
        "confidence": None,
        "intervals_by": "how runs vary",
        "pipelines": {"one": {"stages": stages}},
        "search": None,
    }
    return found | {"repetition": repetition}


def medians(values: list[float]) -> dict[str, Any]:
    return {
        "median": median(values),
        "low": None,
        "high": None,
        "confidence": None,
        "values": values,
    }


def test_five_runs_that_are_slower_than_five_others_do_not_pass() -> None:
    found = compared(repeated([x + 10 for x in QUIET]), repeated(QUIET), "base.json")
    assert (found["by"], found["passed"]) == ("runs", False)
    assert {row["verdict"] for row in found["rows"]} == {"worse"}
    assert "worse in one join p50 (30 → 40 ms)" in found["said"]


@pytest.mark.parametrize("shift", [0.0, 0.3, -10.0])
def test_five_runs_that_are_alike_or_faster_pass(shift: float) -> None:
    found = compared(repeated([x + shift for x in QUIET]), repeated(QUIET), "base.json")
    assert (found["by"], found["passed"]) == ("runs", True)


def searched(rates: list[float], low: float, high: float | None) -> dict[str, Any]:
    """A search, or several. Their latencies differ, at different rates."""
    search = {"rate_per_second": rates[0], "interval_per_second": [low, high]}
    found = a_report(rates[0] / 1000, conclusion={"search": search})
    if len(rates) == 1:
        return found
    several = search | {"rates_per_second": rates}
    return found | {"repetition": {"runs": [], "pipelines": {}, "search": several}}


def test_of_searches_the_rates_are_compared_and_not_the_latencies() -> None:
    rates = [50_000.0, 51_000.0, 49_000.0, 50_500.0, 50_000.0]
    before = searched(rates, 48_000, 52_000)
    slower = compared(searched([rate * 0.8 for rate in rates], 39_000, 42_000), before, "b.json")
    assert (slower["by"], slower["passed"]) == ("runs", False)
    assert "worse in one sustainable rate (50000 → 40000 records/s)" in slower["said"]
    faster = compared(searched([rate * 1.2 for rate in rates], 57_000, 63_000), before, "b.json")
    assert [row["verdict"] for row in faster["rows"]] == ["better"]
    assert faster["passed"] is True


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(30e3, 33e3, "worse"), (47e3, 49e3, "same"), (60e3, 63e3, "better"), (60e3, None, "unknown")],
)
def test_single_searches_differ_if_their_intervals_are_apart(
    low: float, high: float | None, verdict: str
) -> None:
    found = compared(searched([low], low, high), searched([50e3], 48e3, 52e3), "base.json")
    assert [row["verdict"] for row in found["rows"]] == [verdict]


def test_four_runs_decide_nothing() -> None:
    found = compared(repeated([x + 10 for x in QUIET[:4]]), repeated(QUIET), "base.json")
    assert (found["by"], found["passed"]) == ("seconds", None)
    assert "--repeat 5 on both sides decides" in found["said"]


@pytest.mark.parametrize(
    ("p99", "verdict"), [(33.0, "worse"), (31.5, "same"), (28.5, "same"), (27.0, "better")]
)
def test_single_runs_differ_if_their_intervals_are_apart(p99: float, verdict: str) -> None:
    found = compared(a_report(p99), a_report(), "base.json")
    assert {row["verdict"] for row in found["rows"]} == {verdict}
    assert found["passed"] is None


def test_without_intervals_nothing_is_known() -> None:
    found = compared(a_report(90.0, within=None), a_report(), "base.json")
    assert {row["verdict"] for row in found["rows"]} == {"unknown"}
    assert "too little data" in found["said"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"workload": "skew"}, "workload skew, not latency"),
        ({"cores": "4"}, "cores 4, not 2"),
        ({"rate": "1000 records/s"}, "rate 1000 records/s, not 400 records/s"),
    ],
)
def test_another_load_or_machine_is_not_compared(change: dict[str, str], said: str) -> None:
    other = a_report()["identity"] | change
    found = compared(repeated([90.0] * 5, identity=other), repeated(QUIET), "base.json")
    assert found["said"] == f"Not compared with the baseline base.json: {said}."
    assert (found["rows"], found["passed"]) == ([], None)


def test_an_unsteady_run_decides_nothing() -> None:
    found = compared(repeated([90.0] * 5, steady=False), repeated(QUIET), "base.json")
    assert found["passed"] is None
    assert found["said"].endswith("This is not conclusive: run-1 was not steady.")


@pytest.mark.parametrize(("valid", "passed"), [(True, None), (False, False)])
def test_a_doubt_about_any_valid_run_of_several_decides_nothing(
    valid: bool, passed: bool | None
) -> None:
    report = repeated([90.0] * 5)
    runs = [{"valid": True, "doubts": []}, {"valid": valid, "doubts": ["run-7 was disturbed"]}]
    report["repetition"]["runs"] = runs
    assert compared(report, repeated(QUIET), "base.json")["passed"] is passed


def test_other_stages_or_pipelines_beside_are_not_compared() -> None:
    cell = a_report()["pipelines"]["one"]["stages"]["join"]
    both = a_report(pipelines={"one": {"stages": {"join": cell, "parse": cell}}})
    assert compared(both, a_report(), "b")["left_out"] == ["stages join, parse, not join"]
    two = {"one": {"stages": {"join": cell}}, "two": {"stages": {"join": cell}}}
    found = compared(a_report(), a_report(pipelines=two), "b")
    assert found["left_out"] == ["pipelines one, not one, two"]
    assert compared(a_report(pipelines=two), a_report(pipelines=two), "b")["left_out"] == []


def test_the_only_pipeline_of_a_baseline_serves_for_another() -> None:
    other = a_report(40.0)
    other["pipelines"] = {"two": other["pipelines"].pop("one")}
    (row, *_) = compared(other, a_report(), "base.json")["rows"]
    assert (row["pipeline"], row["before"], row["now"]) == ("two", 30.0, 40.0)


def test_a_cost_that_doubled_does_not_pass() -> None:
    reports = []
    for factor in (1, 2):
        one = repeated(QUIET)
        costs = [factor * (2_000 + value) for value in QUIET]
        resources = {"core_seconds_per_million_records": medians(costs)}
        one["repetition"]["pipelines"]["one"]["resources"] = resources
        one["pipelines"]["one"]["resources"] = {"core_seconds_per_million_records": costs[0]}
        reports.append(one)
    found = compared(reports[1], reports[0], "base.json")
    assert found["passed"] is False
    said = "worse in one cost (2030 → 4060 core-seconds per million records)."
    assert found["said"].endswith(said)
