"""The verb `compare`."""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from analysis.comparability import Facts
from analysis.costs import COST
from services.console.report import compare as comparing
from services.runtime.clickhouse import QueryError
from tests.unit.analysis.test_comparability import facts
from tests.unit.reports import report_of

pytestmark = pytest.mark.unit
OTHERS_OF_300 = ("mean", "p5", "p25", "p75", "p90", "p95")  # figures of 300 outputs


class Runs:
    """Runs whose facts and latencies are computed; `read` has those whose latencies were read."""

    def __init__(
        self,
        facts_of: Callable[[str], Facts],
        latencies_of: Callable[[str], dict[str, Any]] = lambda _run_id: {},
    ) -> None:
        self.facts, self._latencies_of = facts_of, latencies_of
        self.read: list[str] = []

    def latencies(self, run_id: str) -> dict[str, Any]:
        self.read.append(run_id)
        return self._latencies_of(run_id)


def test_the_pipelines_of_a_run_in_turns_are_compared_as_its_report_does() -> None:
    found = {
        "said": "b is faster than a in join p50.",
        "blocks": 40,
        "block_s": 10,
        "edge_s": 1,
        "confidence": 0.95,
        "described": [],
        "order": ["a", "b"],
    }
    report: dict[str, Any] = {"run_id": "r", "domain": "traffic", "environment": {}}
    report |= {"valid": True, "interleaved": found}
    request = {"workload": {"name": "latency", "load": {}}, "domain": {"name": "traffic"}}
    request["environment"] = {}

    one = Runs(lambda _run_id: Facts(report_of(report), request, {}))
    console = Console(file=io.StringIO(), width=200)
    comparing.show_comparison(console, comparing.compared(one, ["r"], None))
    assert console.file.getvalue() == (  # type: ignore[attr-defined]
        "Interleaved: b is faster than a in join p50.\n"
        "From 40 blocks of 10 s, compared in pairs, using the middle 8 s of each; all intervals "
        "hold together with 95% confidence.\n"
    )


RUNS = ("before", *(f"b{n}" for n in range(4)), "after", *(f"a{n}" for n in range(4)))
LATENCY_MS = dict(zip(RUNS, (5, 6, 7, 6, 5, 25, 26, 27, 26, 25), strict=True))


@pytest.fixture
def ten_runs() -> Runs:
    """Five runs on each side: latency and cost of the second side are higher."""

    def read(run_id: str) -> Facts:
        level = LATENCY_MS[run_id]
        used = {COST: 100.0 * level, "core_seconds_interval": None}
        one = {"stages": {"join": {"records_per_second": 400.0 + level}}, "resources": used}
        return facts(run_id, steady=True, pipelines={"p": one})

    def latencies(run_id: str) -> dict[str, Any]:
        level = LATENCY_MS[run_id]
        return {"p": {"join": {second: {level: 90, level + 9: 10} for second in range(30)}}}

    return Runs(read, latencies)


def printed(known: Runs, *, whole: bool) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    result = comparing.compared(known, RUNS[:5], RUNS[5:])
    comparing.show_comparison(console, result, whole=whole)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_the_cost_is_told_beside_the_decision_and_other_figures_on_request(
    ten_runs: Runs,
) -> None:
    lines = printed(ten_runs, whole=False)
    assert lines[0] == "p against p"
    assert lines[1].startswith("  join p50: 6 → 26 ms; slower by 20 ms")
    assert lines[3] == (
        "  Described only: cost 580 → 2580 core-seconds per million records, +2000 (+345%), "
        "between +1878 and +2122."
    )
    assert lines[4].startswith("p is slower in join p50, join p99 than p.")
    assert len(lines) == 5
    whole = printed(ten_runs, whole=True)
    assert whole[:3] == lines[:3]
    assert whole[-1] == lines[-1]
    table = [line.split() for line in whole[3:-1]]
    figures = [line[:4] for line in table if line and line[0] in ("join", "cost,")]
    assert figures == [
        ["join", "mean,", "ms", "6.7"],
        ["join", "p5,", "ms", "5"],
        ["join", "p25,", "ms", "5"],
        ["join", "p75,", "ms", "7"],
        ["join", "p90,", "ms", "7"],
        ["join", "p95,", "ms", "15"],
        ["join", "output", "rate,", "/s"],
        ["cost,", "core-s/M", "580", "2580"],
    ]
    assert max(map(len, whole[3:-1])) <= 80


def test_json_has_the_decided_and_the_described_figures(ten_runs: Runs) -> None:
    found = comparing.as_json(comparing.compared(ten_runs, RUNS[:5], RUNS[5:]))
    assert json.loads(json.dumps(found)) == found
    (one,) = found["comparisons"]
    assert (found["left_out"], found["interleaved"], one["by"]) == ({}, None, "runs")
    assert one["before"] == {"pipeline": "p", "runs": list(RUNS[:5])}
    decided = {row["figure"]: row["real"] for row in one["differences"]}
    assert decided == {"p50": True, "p99": True}
    assert [row["figure"] for row in one["described"]] == [
        *OTHERS_OF_300,
        "records_per_second",
        COST,
    ]
    assert one["said"].startswith("p is slower in join p50, join p99 than p.")


def test_the_pipelines_of_one_run_need_no_second_side() -> None:
    def both(run_id: str) -> dict[str, Any]:
        level = LATENCY_MS[run_id]
        return {
            name: {"join": {second: {level + more: 10} for second in range(30)}}
            for name, more in (("p", 0), ("q", 3))
        }

    def read(run_id: str) -> Facts:
        two = [{"name": name, "summary": "-"} for name in "pq"]
        cells = {name: {"stages": {}, "resources": {COST: 7.0}} for name in "pq"}
        found = facts(run_id, steady=True, pipelines=cells)
        return Facts(found.report, found.request | {"pipelines": two}, {})

    result = comparing.compared(Runs(read, both), ["before"], None)
    (one,) = comparing.as_json(result)["comparisons"]
    assert (one["by"], one["before"]["pipeline"], one["after"]["pipeline"]) == (
        "seconds",
        "p",
        "q",
    )
    assert {row["figure"]: (row["value"], row["real"]) for row in one["differences"]} == {
        "p50": (3.0, True),
        "p99": (3.0, True),
    }
    assert [row["figure"] for row in one["described"]] == [*OTHERS_OF_300, COST]


def test_latencies_at_different_rates_found_by_searches_are_not_conclusive() -> None:
    def of(run_id: str, rate: float) -> Facts:
        return facts(run_id, conclusion={"search": {"verified_at_per_second": rate}})

    side = comparing.Side("p", ())
    other = comparing.Pair(side, side, ([of("a", 30_000)], [of("b", 60_000)]), same_run=False)
    rates = "30000 records/s and 60000 records/s"
    assert other.doubts == [f"the latencies are of the rates found, {rates}"]
    alike = comparing.Pair(side, side, ([of("a", 30_000)], [of("b", 30_000)]), same_run=False)
    assert alike.doubts == []


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (["a", "b"], None, "Several runs need a second side: "),
        (["a", "b"], ["c", "b"], "b is on both sides."),
    ],
)
def test_sides_that_are_none_are_refused(
    before: list[str], after: list[str] | None, sentence: str
) -> None:
    with pytest.raises(QueryError, match=f"^{sentence}"):
        comparing.compared(Runs(facts), before, after)


def test_a_run_that_is_named_twice_counts_once() -> None:
    known = Runs(facts, lambda _run_id: {"p": {"join": {0: {5: 10}}}})
    (pair,) = comparing.compared(known, ["a", "a"], ["b", "c", "b"]).pairs
    assert known.read == ["a", "b", "c"]
    assert [[each.report.run_id for each in side] for side in pair.facts] == [["a"], ["b", "c"]]


def test_without_a_comparable_run_the_reason_is_an_error() -> None:
    known = Runs(lambda run_id: facts(run_id, rate=400 if run_id == "a" else 500))
    with pytest.raises(QueryError) as refused:
        comparing.compared(known, ["a"], ["b"])
    assert str(refused.value) == (
        "b is left out: rate 500 records/s, not 400 records/s. Nothing to compare: no run is left "
        "on the second side."
    )
