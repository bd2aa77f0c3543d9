"""Reports in formats for CI programs."""

import json
from typing import Any
from xml.etree import ElementTree

import pytest

from services.console.report import ci
from tests.unit.reports import report_of

pytestmark = pytest.mark.unit

CLEAN = {"exact": 9, "wrong": 0, "missing": 0, "late": 0, "duplicate": 0, "unexpected": 0}


def junit(report: dict[str, Any]) -> bytes:
    return ci.junit(report_of(report))


def benchmark(report: dict[str, Any]) -> bytes:
    return ci.benchmark(report_of(report))


def report(**changes: Any) -> dict[str, Any]:
    latest = {"p50": 3, "p95": 8, "p99": 12}
    return {
        "run_id": "r1",
        "workload": "latency",
        "domain": "traffic",
        "valid": True,
        "invalid_reasons": [],
        "conclusion": {},
        "pipelines": {
            "a": {
                "stages": {
                    "join": {"verdicts": CLEAN, "latency_ms": {"latest": latest}},
                    "sliding": {"verdicts": dict.fromkeys(CLEAN, 0), "latency_ms": {}},
                },
                "resources": {"core_seconds_per_million_records": 2000.5},
            }
        },
        "thresholds": [
            {"threshold": "join.p99_ms <= 10", "pipeline": "a", "stage": "join", "value": 12,
             "limit": 10, "passed": False},
        ],
    } | changes  # fmt: skip


def cases(data: bytes) -> dict[str, str]:
    """Text of the failure by test case, empty if it passed."""
    return {
        f"{case.get('classname')} {case.get('name')}": case.findtext("failure") or ""
        for case in ElementTree.fromstring(data).iter("testcase")
    }


def test_every_check_is_a_test_case() -> None:
    data = junit(report())
    assert cases(data) == {
        "tidegauge.run valid": "",
        "tidegauge.a.join every output is exact": "",
        "tidegauge.a.sliding every output is exact": "no output was judged",
        "tidegauge.a.join join.p99_ms <= 10": "failed: join.p99_ms <= 10; a join has 12",
    }
    suite = ElementTree.fromstring(data).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("4", "2")


def test_outputs_of_a_watch_fail_unless_a_threshold_limits_their_verdict() -> None:
    limit = {"threshold": "output.missing <= 5", "pipeline": "a", "stage": "output", "passed": True}
    limited = {"thresholds": [limit], "conclusion": {"watch": {"refused": 0}}}

    def failure(exact: int = 9, **changes: Any) -> str:
        cell = {"verdicts": CLEAN | {"exact": exact, "missing": 3}, "latency_ms": {}}
        pipelines = {"a": {"stages": {"output": cell}, "resources": {}}}
        told = limited | {"pipelines": pipelines} | changes
        return cases(junit(report(**told)))["tidegauge.a.output every output is exact"]

    assert failure() == ""
    assert failure(thresholds=[]) == "output has 3 missing."
    assert failure(exact=0) == "output has no exact output."
    refused = {"watch": {"refused": 2}}
    assert failure(conclusion=refused) == "2 records were not evaluated."
    row = {"kind": "refused", "reason": "it has no key"}
    other = {"kind": "other_type", "reason": "its type is shop.Renamed"}
    told = {"watch": {"refused": 2, "not_judged": [row, other]}}
    assert failure(conclusion=told) == "2 records were not evaluated: it has no key."
    assert failure(conclusion={"watch": {"refused": 0, "not_judged": [other]}}) == ""


def test_of_several_runs_each_that_was_not_good_fails() -> None:
    good = {"run_id": "r1", "valid": True, "clean": True, "invalid_reasons": []}
    runs = [
        good | {"failed_thresholds": []},
        good | {"run_id": "r2", "clean": False, "failed_thresholds": ["Threshold failed: x."]},
        good | {"run_id": "r3", "valid": False, "invalid_reasons": ["The load was late."]},
    ]
    found = cases(junit(report(repetition={"runs": runs})))
    assert [found[f"tidegauge.run.{one} valid and clean"] for one in ("r1", "r2", "r3")] == [
        "",
        "Threshold failed: x. Not every output was exact.",
        "The load was late.",
    ]


def test_of_a_series_each_run_is_a_test_case() -> None:
    good = {"run_id": "w1", "valid": True, "clean": True, "invalid_reasons": []}
    late = good | {"run_id": "w2", "valid": False, "invalid_reasons": ["The load was late."]}
    found = cases(junit(report(scalability={"points": [{"runs": [good]}, {"runs": [late]}]})))
    assert found["tidegauge.run.w1 valid and clean"] == ""
    assert found["tidegauge.run.w2 valid and clean"] == "The load was late."


def test_an_invalid_run_fails_with_its_reasons_whatever_is_in_them() -> None:
    data = junit(report(valid=False, invalid_reasons=["a < b & \x00c.", "Why."]))
    assert cases(data)["tidegauge.run valid"] == "a < b & \ufffdc. Why."


def test_figures_are_of_a_valid_run_only() -> None:
    found = json.loads(benchmark(report()))
    assert [(one["name"], one["unit"], one["value"]) for one in found] == [
        ("a join p50", "ms", 3),
        ("a join p95", "ms", 8),
        ("a join p99", "ms", 12),
        ("a cost", "core-seconds per million records", 2000.5),
    ]
    assert json.loads(benchmark(report(valid=False))) == []


def test_a_figure_of_a_single_run_has_the_interval_of_the_run() -> None:
    one = report()
    latest = one["pipelines"]["a"]["stages"]["join"]["latency_ms"]["latest"]
    latest["intervals"] = {"p50": [2, 4.5], "p99": None}
    found = json.loads(benchmark(one))
    assert [each.get("range") for each in found] == ["2 to 4.5", None, None, None]


def test_the_decision_over_pipelines_in_turns_is_a_property() -> None:
    data = junit(report(interleaved={"said": "b is slower than a."}))
    found = {one.get("name"): one.get("value") for one in ElementTree.fromstring(data).iter()}
    assert found["interleaved"] == "b is slower than a."


def test_of_searches_the_time_per_record_is_tracked() -> None:
    once = report(conclusion={"search": {"rate_per_second": 40_000}})
    (one,) = json.loads(benchmark(once))
    assert (one["name"], one["value"]) == ("a time", 25.0)
    (one,) = json.loads(
        benchmark(
            once
            | {"repetition": {"runs": [], "pipelines": {}, "search": {"median_per_second": 50_000}}}
        )
    )
    assert one["value"] == 20.0


def test_repeated_runs_give_medians_with_their_intervals() -> None:
    interval = {"median": 3, "low": 2.5, "high": 4}
    unknown = {"median": 8, "low": None, "high": None}
    latest = {"p50": interval, "p95": unknown, "p99": unknown}
    stages = {"join": {"latency_ms": {"latest": latest}}, "sliding": {"latency_ms": {}}}
    found = json.loads(
        benchmark(
            report(repetition={"runs": [], "search": None, "pipelines": {"a": {"stages": stages}}})
        )
    )
    assert [(one["value"], one.get("range")) for one in found[:2]] == [(3, "2.5 to 4"), (8, None)]
