"""The report of two pipelines measured alternately."""

from typing import Any

import pytest

from analysis.costs import COST
from analysis.interleaving import Block, Turns, blocks
from analysis.repetition import summarise
from schemas.protocol import Interleaving
from schemas.report import Interleaved, Report
from services.console.report.ci import markdown
from services.console.report.several import UsageSamples, interleaved
from services.console.report.words import interleaved_sentences
from services.readmodel.seconds import BySecond, CpuSample
from tests.unit.console.test_show import a_report, a_stage, shown

pytestmark = pytest.mark.unit
TURNS = Interleaving(block_s=6, first_s=2, edge_s=1, order=("a", "b", "b", "a"))
START_S = 1_000  # of the load; measured from its second second on, for twelve blocks


def latencies(slower_ms: int) -> dict[tuple[str, str], BySecond]:
    """The join of `a` takes 10 and 12 ms, that of `b` longer; 20 outputs a second, alternately."""
    turns = Turns(TURNS, START_S, (START_S + 2, START_S + 74))
    found = {}
    for name, more_ms in (("a", 0), ("b", slower_ms)):
        found[name, "join"] = {
            second: {10 + more_ms: 10 + place % 2, 12 + more_ms: 10}
            for place, second in enumerate(sorted(turns.seconds_of(name)))
        }
    return found


def report_of(**fields: Any) -> Report:
    one = a_report()["pipelines"]["spark-realtime"] | {"stages": {"join": a_stage(11)}}
    report = a_report() | {"pipelines": {"a": one, "b": one}, "steady": True, "identity": {}}
    return Report.model_validate(report).model_copy(update=fields)


def told(slower_ms: int, costs: bool = False, **fields: Any) -> Interleaved:
    found = blocks(TURNS.order, 6, START_S + 2, (START_S + 2, START_S + 74))
    by_block = usage().by_block(found, 1) if costs else {}
    return interleaved(latencies(slower_ms), TURNS, found, report_of(**fields), by_block)


def usage() -> UsageSamples:
    """400 records/s. Both pipelines are sampled every second: `a` uses 0.1 cores, `b` 0.2, and each
    0.7 in the first and last second of a block."""
    samples, records = [], {}
    for at_s in range(START_S, START_S + 80):
        inside = 0 < (at_s - START_S - 2) % 6 < 5
        for name, cores in (("a", 0.1), ("b", 0.2), ("", 0.0)):
            samples.append(CpuSample(at_s + 1.0, 1.0, cores if inside else 0.7, name))
        records[at_s] = 400
    return UsageSamples(samples, records)


def test_a_slower_pipeline_is_called_slower_with_how_much() -> None:
    found = told(2)
    assert (found.order, found.blocks, len(found.pairs)) == (["a", "b", "b", "a"], 12, 6)
    assert found.pairs[1].start_s == [START_S + 2 + 18, START_S + 2 + 12]
    cell = found.differences["join"]["mean"]
    assert (cell.value, cell.real) == (pytest.approx(2.0), True)
    assert cell.low <= 2.0 <= cell.high
    assert found.said.startswith("b is slower in join p50 (+2 ms, ")
    assert interleaved_sentences(report_of(interleaved=found)) == [
        f"Interleaved: {found.said}",
        "From 12 blocks of 6 s, compared in pairs, using the middle 4 s of each; all intervals "
        "hold together with 95% confidence.",
    ]


def test_the_cost_is_described_from_the_middle_of_each_block() -> None:
    found = told(0, costs=True)
    (cost,) = found.described
    assert (cost.stage, cost.figure) == ("", COST)
    # 0.1 and 0.2 core-seconds for 400 records
    assert (cost.before, cost.after, cost.value) == pytest.approx((250, 500, 250))
    assert found.said.startswith("No significant difference")
    assert interleaved_sentences(report_of(interleaved=found))[2] == (
        "Described only, a → b, with an interval of its own: cost 250 → 500 core-seconds per "
        "million records, +250 (+100%), between +250 and +250."
    )


def test_a_block_without_samples_has_no_cost() -> None:
    of_both = usage()
    late = UsageSamples([row for row in of_both.samples if row.at_s > START_S + 8], of_both.records)
    first, second = Block("a", START_S + 2, START_S + 8), Block("b", START_S + 8, START_S + 14)
    assert late.by_block([first, second], 1) == {second: pytest.approx(500)}


def test_of_the_same_nothing_is_said() -> None:
    found = told(0)
    assert not any(one.real for one in found.differences["join"].values())
    assert found.said.startswith("No significant difference between b and a.")


def test_a_run_that_was_not_steady_calls_nothing_real_and_says_what_is_needed() -> None:
    found = told(2, steady=False)
    assert not any(one.real for one in found.differences["join"].values())
    assert found.said.endswith(
        "This is not conclusive: 20260101-000000-abcd was not steady. Needed: a longer warm-up "
        "(--warm-up auto)."
    )


def one_of_several(number: int, slower_ms: int, **fields: Any) -> Report:
    """A run with three of the six pairs of `told`."""
    found = told(slower_ms, costs=True)
    return report_of(
        run_id=f"run-{number}",
        interleaved=found.model_copy(update={"blocks": 6, "pairs": found.pairs[:3]}),
        **fields,
    )


def test_several_runs_are_decided_together() -> None:
    report = summarise([one_of_several(number, 2) for number in range(2)])
    found = report.interleaved
    assert found is not None
    assert (found.runs, found.blocks, len(found.pairs)) == (["run-0", "run-1"], 12, 6)
    assert found.said.startswith("b is slower in join p50 (+2 ms, ")
    assert [row.figure for row in found.described] == [COST]
    assert interleaved_sentences(report)[1].startswith(
        "From 12 blocks of 6 s of 2 runs, compared in pairs, using the middle 4 s of each"
    )


def test_of_several_runs_those_in_doubt_do_not_decide_unless_all_are() -> None:
    unsteady = [one_of_several(number, 1, steady=False) for number in range(2)]
    steady = [one_of_several(number, 2) for number in range(2, 4)]
    found = summarise([*unsteady, *steady]).interleaved
    assert found is not None
    assert (found.runs, found.differences["join"]["mean"].real) == (
        ["run-2", "run-3"],
        True,
    )
    undecided = summarise(unsteady).interleaved
    assert undecided is not None
    assert "This is not conclusive" in undecided.said


def test_terminal_and_markdown_have_the_decision() -> None:
    report = report_of(interleaved=told(2))
    for text in (shown(report.as_json()), markdown(report)):
        assert "Interleaved: b is slower in join p50 (+2 ms" in text
    assert "In turns" not in markdown(report_of())
