"""Repetition and comparison in words."""

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from analysis.comparison import (
    FigureDifference,
    Side,
    conclusion,
    differences,
    other_latencies,
    pairs_of,
    pipelines_of,
    sentence,
)
from analysis.intervals import Interval, run_difference
from analysis.repetition import median_run, summarise
from schemas.report import Report, Resources
from schemas.validation_errors import DefinitionError
from services.console.report.terminal import show_report
from services.console.report.words import searches_sentence
from tests.unit.console.test_show import a_report, a_stage

pytestmark = pytest.mark.unit


def a_run(latency_ms: int, name: str = "p") -> dict[str, dict[str, dict[int, dict[int, int]]]]:
    """Thirty seconds of one stage with approximately this latency."""
    return {name: {"join": {second: {latency_ms + second % 3: 10} for second in range(30)}}}


def test_runs_that_differ_are_told_apart_stage_by_stage() -> None:
    (pair,) = pairs_of([a_run(5)], [a_run(8)])
    found = differences(*pair, same_run=False)
    assert [sentence(one, may_be_real=False) for one in found] == [
        "join p50: 6 → 9 ms; slower by 3 ms (+50%), between +3 and +3, in these runs.",
        "join p99: 7 → 10 ms; slower by 3 ms (+43%), between +3 and +3, in these runs.",
    ]
    assert conclusion(*pair, found, same_run=False, doubts=()) == (
        "p was slower in join p50, join p99 than p in these runs. Measure 5 runs of each "
        "(--repeat 5) to compare this with the variation between runs."
    )


def test_intervals_are_wider_if_more_pairs_are_decided_together() -> None:
    (pair,) = pairs_of([a_run(n) for n in (5, 9, 6, 8, 7)], [a_run(n) for n in (6, 8, 7, 9, 5)])
    one, five = (differences(*pair, same_run=False, pairs=pairs)[0] for pairs in (1, 5))
    assert one.interval.value == five.interval.value
    assert (one.interval.high or 0) < (five.interval.high or 0)


def test_runs_of_less_than_half_a_minute_decide_nothing() -> None:
    short = [{"p": {"join": {second: {ms: 10} for second in range(29)}}} for ms in (5, 9)]
    (pair,) = pairs_of(short[:1], short[1:])
    assert not any(one.is_real for one in differences(*pair, same_run=False))


def test_nothing_is_called_real_of_runs_that_were_not_steady() -> None:
    (pair,) = pairs_of([a_run(n) for n in range(5, 10)], [a_run(n) for n in range(35, 40)])
    found = differences(*pair, same_run=False)
    assert sentence(found[0]).endswith("significant.")
    assert conclusion(*pair, found, same_run=False, doubts=()) == (
        "p is slower in join p50, join p99 than p. The intervals come from the variation between "
        "runs."
    )
    assert conclusion(*pair, found, same_run=False, doubts=["R was not steady"]) == (
        "p was slower in join p50, join p99 than p in these runs. This is not conclusive: "
        "R was not steady."
    )


def test_five_runs_on_each_side_are_judged_by_how_runs_vary() -> None:
    (pair,) = pairs_of([a_run(n) for n in (5, 9, 6, 8, 7)], [a_run(n) for n in (6, 8, 7, 9, 5)])
    found = differences(*pair, same_run=False)
    assert not any(one.is_real for one in found)
    said = conclusion(*pair, found, same_run=False, doubts=())
    assert said == "No significant difference."


def test_runs_that_overlap_show_no_difference_and_those_apart_do() -> None:
    before = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]
    assert not run_difference(before, [v + 1 for v in before], 0.95).excludes_zero
    found = run_difference(before, [v + 10 for v in before], 0.95)
    # 10 ± 2.228 (t of 10) · √(2 · 3.5 / 6)
    assert (found.low, found.value, found.high) == pytest.approx((7.593, 10.0, 12.407), abs=0.001)
    assert run_difference([5.0] * 5, [6.0] * 5, 0.99) == Interval(1.0, 1.0, 1.0)


def test_of_five_runs_each_of_the_same_at_most_one_in_twenty_differs() -> None:
    random = np.random.default_rng(20_261_123)

    def five() -> list[dict[str, Any]]:
        levels = [round(300 + 30 * one) for one in random.standard_normal(5)]
        return [
            {"p": {f"s{n}": a_run(level + n)["p"]["join"] for n in range(5)}} for level in levels
        ]

    differing = 0
    for _ in range(100):
        (pair,) = pairs_of(five(), five())
        differing += any(one.is_real for one in differences(*pair, same_run=False))
    assert differing <= 5


def test_other_latencies_are_described_if_there_are_outputs_enough_and_decide_nothing() -> None:
    (pair,) = pairs_of([a_run(n) for n in (5, 9, 6, 8, 7)], [a_run(n + 40) for n in range(5)])
    found = other_latencies(*pair, same_run=False)
    # 300 outputs of a run are too few for the 99.9th percentile.
    expected = ("mean", "p5", "p25", "p75", "p90", "p95")
    assert [(one.stage, one.figure) for one in found] == [("join", figure) for figure in expected]
    mean = found[0]
    # Runs of 5 to 9 and of 40 to 44, of which each second has 0, 1 or 2 ms more.
    assert (mean.before, mean.after, mean.interval.value) == pytest.approx((8.0, 43.0, 35.0))
    # 2.306 (t of 8) · √(2 · 2.5 / 5)
    assert mean.interval.low == pytest.approx(35 - 2.306, abs=0.001)
    assert {one.figure for one in differences(*pair, same_run=False)} == {"p50", "p99"}


def test_the_pipelines_of_one_run_are_compared_with_each_other() -> None:
    ((before, after),) = pipelines_of(a_run(9, "a") | a_run(4, "b"))
    found = differences(before, after, same_run=True)
    assert conclusion(before, after, found, same_run=True, doubts=()) == (
        "b is faster in join p50, join p99 than a. This applies to this run, in which both ran at "
        "once; run --pipeline A,B --interleave measures them alternately."
    )


def test_what_cannot_be_told_is_said() -> None:
    unsure = FigureDifference("join", "p50", 5.0, 6.0, Interval(1.0, -2.0, 3.0))
    assert (
        sentence(unsure) == "join p50: 5 → 6 ms; no significant difference (between -2 and +3 ms)."
    )
    unknown = FigureDifference("join", "p50", 5.0, 6.0, Interval(1.0, None, None))
    assert "not enough data" in sentence(unknown)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no pipeline in common"):
        pairs_of([a_run(1, "a") | a_run(1, "b")], [a_run(1, "c")])
    with pytest.raises(DefinitionError, match="only one pipeline"):
        pipelines_of(a_run(1))
    assert pairs_of([a_run(1, "a")], [a_run(1, "b")])[0][0] == Side("a", (a_run(1, "a")["a"],))


def repeated(run_id: str, p50: int, valid: bool = True, **fields: Any) -> Report:
    report = a_report() | {"run_id": run_id, "valid": valid} | fields
    report["pipelines"]["spark-realtime"]["stages"] = {"parse": a_stage(p50)}
    return Report.model_validate(report)


def test_the_median_run_is_the_one_in_the_middle() -> None:
    runs = [repeated("a", 9), repeated("b", 4), repeated("c", 5)]
    assert median_run(runs).run_id == "c"


def test_an_invalid_run_counts_for_nothing_but_is_named() -> None:
    summary = summarise([repeated("a", 900, valid=False), repeated("b", 4), repeated("c", 6)])
    assert summary.repetition is not None
    told = summary.repetition.as_json()
    assert [run["valid"] for run in told["runs"]] == [False, True, True]
    assert told["intervals_by"] == "how runs vary"
    stage = told["pipelines"]["spark-realtime"]["stages"]["parse"]
    assert stage["latency_ms"]["latest"]["p50"] == {
        "median": 5.0,
        "low": 4.0,
        "high": 6.0,
        "confidence": 0.5,
        "values": [4, 6],
    }


def test_five_runs_have_the_median_of_each_figure_with_its_spread() -> None:
    """With 15 of 16, the median of what is measured is between the least and the greatest."""
    heaps = (70, 30, 50, 90, 10)
    runs = []
    for number, (p50, heap) in enumerate(zip((9, 4, 7, 5, 30), heaps, strict=True)):
        run = repeated(f"r{number}", p50)
        pipeline = run.pipelines["spark-realtime"]
        used = Resources(cpu_cores=heap / 100, heap_used_bytes_mean=heap)
        of_run = {"spark-realtime": pipeline.model_copy(update={"resources": used})}
        runs.append(run.model_copy(update={"pipelines": of_run}))
    summary = summarise(runs)
    assert summary.repetition is not None
    medians = summary.repetition.pipelines["spark-realtime"]
    p50 = medians.stages["parse"].latency_ms["latest"]["p50"]
    assert (p50.median, p50.low, p50.high) == (7, 4, 30)
    assert p50.values == [9, 4, 7, 5, 30]
    assert p50.confidence == pytest.approx(15 / 16)
    assert (summary.run_id, summary.repetition.median_run) == ("r2", "r2")
    heap = medians.resources["heap_used_bytes_mean"]
    assert (heap.median, heap.low, heap.high, heap.values) == (50, 10, 90, [*heaps])
    assert medians.resources["cpu_cores"].median == 0.5
    assert "heap_used_bytes_min" not in medians.resources


def disturbed(run_id: str, *outages_s: float | None, event: str = "kill of the driver") -> Report:
    """A run with a recovery from each of several kills."""
    report = repeated(run_id, 4).model_dump(exclude_unset=True)
    report["pipelines"]["spark-realtime"]["stages"]["parse"]["recovery"] = [
        {
            "event": event,
            "normal_ms": 10.0,
            "highest_median_ms": 900,
            "high_for_s": None if outage_s is None else int(outage_s) + 2,
            "silent_s": 3,
            "outage_s": outage_s,
        }
        for outage_s in outages_s
    ]
    return Report.model_validate(report)


def test_repeated_runs_have_the_medians_of_the_recovery_from_each_kill() -> None:
    def recovered(*runs: Report) -> list[dict[str, Any]] | None:
        repetition = summarise([*runs]).repetition
        assert repetition is not None
        stage = repetition.pipelines["spark-realtime"].stages["parse"].as_json()
        recovery: list[dict[str, Any]] | None = stage.get("recovery")
        return recovery

    runs = [disturbed("a", 4.5, 6.0), disturbed("b", 9.25, None), disturbed("c", 5.0, 8.0)]
    first, second = recovered(*runs) or []
    assert (first["event"], second["event"]) == ("kill of the driver",) * 2
    outage = first["figures"]["outage_s"]
    assert (outage["median"], outage["values"]) == (5.0, [4.5, 9.25, 5.0])
    assert first["figures"]["high_for_s"]["values"] == [6, 11, 7]
    # The second kill of b had no end, so it has no median, and is not left out of one.
    assert set(second["figures"]) == {"normal_ms", "highest_median_ms", "silent_s"}
    assert recovered(runs[0], disturbed("d", 4.5)) is None
    assert recovered(runs[0], disturbed("d", 4.5, 6.0, event="pause of the driver")) is None
    assert recovered(repeated("e", 4), repeated("f", 5)) is None


def test_several_searches_give_the_interval_that_they_found() -> None:
    runs = []
    for rate, high in ((40_000.0, 44_000.0), (42_000.0, 46_000.0)):
        search = {"rate_per_second": rate, "interval_per_second": [rate, high], "limited_by": "x"}
        runs.append(repeated("a", 4, conclusion={"clean": True, "search": search}))
    repetition = summarise(runs).repetition
    assert repetition is not None
    searched = repetition.search
    assert searched is not None
    assert searched.interval_per_second == [40_000, 46_000]
    assert searches_sentence(searched) == (
        "Searches found 40000, 42000 records/s: they differ by 5%, and the sustainable rate is "
        "between 40000 and 46000/s."
    )
    alone = summarise([repeated("a", 4)]).repetition
    assert alone is not None
    assert alone.search is None


def test_without_a_valid_run_the_last_is_shown() -> None:
    summary = summarise([repeated("a", 1, valid=False), repeated("b", 2, valid=False)])
    assert summary.repetition is not None
    assert (summary.run_id, summary.repetition.median_run) == ("b", None)


def test_a_failed_threshold_of_a_run_that_is_not_the_median_is_printed() -> None:
    row = {"threshold": "join.p99_ms <= 10", "pipeline": "a", "stage": "join", "value": 12}
    failed = [row | {"limit": 10, "passed": False}]
    runs = [repeated("a", 4), repeated("b", 5), repeated("c", 6, thresholds=failed)]
    console = Console(file=io.StringIO(), width=200, markup=False)
    show_report(console, summarise(runs))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "  c: Threshold failed: join.p99_ms <= 10; a join has 12." in text


def test_a_doubt_about_a_run_that_is_not_the_median_is_printed() -> None:
    runs = [repeated("a", 4), repeated("b", 5), repeated("c", 6, disturbed=True)]
    console = Console(file=io.StringIO(), width=200, markup=False)
    show_report(console, summarise(runs))
    assert "  c was disturbed.\n" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_intervals_are_printed() -> None:
    console = Console(file=io.StringIO(), width=200, markup=False)
    show_report(console, summarise([repeated("a", 4), repeated("b", 5), repeated("c", 6)]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "3 runs, 3 valid; above is the median run b." in text
    assert "spark-realtime parse: p50 5 [4–6], p95 9 [9–9], p99 12 [12–12] ms" in text
    assert (
        "median of the runs [interval at 75% confidence, from the variation between runs]; "
        "± above: variation between seconds of one run"
    ) in text


def test_of_two_runs_no_interval_is_told_and_of_one_no_bounds() -> None:
    said = []
    for runs in ("a", "ab"):
        console = Console(file=io.StringIO(), width=200, markup=False)
        show_report(console, summarise([repeated(one, 4) for one in runs]))
        said.append(console.file.getvalue().splitlines()[-1])  # type: ignore[attr-defined]
    last = "± above: variation between seconds of one run"
    both = "median of the runs [both values; two runs are too few for an interval]; "
    assert said == [last, both + last]
