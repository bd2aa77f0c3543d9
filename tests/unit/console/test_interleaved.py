"""The report of two pipelines measured alternately."""

from typing import Any

import pytest

from analysis.interleaving import Turns, blocks
from schemas.protocol import Interleaving
from services.console.interleaved import Latencies, interleaved_sentences, judged
from services.console.page.markdown import markdown
from tests.unit.console.test_show import a_report, a_stage, shown

pytestmark = pytest.mark.unit
TURNS = Interleaving(block_s=6, first_s=2, edge_s=1, order=("a", "b", "b", "a"))
START_S = 1_000  # of the load; measured from its second second on, for twelve blocks


def latencies(slower_ms: int) -> Latencies:
    """The join of `a` takes 10 and 12 ms, that of `b` longer; 20 outputs a second, alternately."""
    turns = Turns(TURNS, START_S, (START_S + 2, START_S + 74))
    found: Latencies = {}
    for name, more_ms in (("a", 0), ("b", slower_ms)):
        found[name, "join"] = {
            second: {10 + more_ms: 10 + place % 2, 12 + more_ms: 10}
            for place, second in enumerate(sorted(turns.seconds_of(name)))
        }
    return found


def report_of(**fields: Any) -> dict[str, Any]:
    one = a_report()["pipelines"]["spark-realtime"] | {"stages": {"join": a_stage(11)}}
    return a_report() | {"pipelines": {"a": one, "b": one}, "steady": True} | fields


def told(slower_ms: int, **fields: Any) -> dict[str, Any]:
    found = blocks(TURNS.order, 6, START_S + 2, (START_S + 2, START_S + 74))
    return judged(latencies(slower_ms), TURNS, found, report_of(**fields))


def test_a_slower_pipeline_is_called_slower_with_how_much() -> None:
    found = told(2)
    assert (found["order"], found["blocks"], len(found["pairs"])) == (["a", "b", "b", "a"], 12, 6)
    assert found["pairs"][1]["start_s"] == [START_S + 2 + 18, START_S + 2 + 12]
    cell = found["differences"]["join"]["mean"]
    assert (cell["value"], cell["real"]) == (pytest.approx(2.0), True)
    assert cell["low"] <= 2.0 <= cell["high"]
    assert found["said"].startswith("b is slower in join p50 (+2 ms, ")
    assert interleaved_sentences(report_of(interleaved=found)) == [
        f"Interleaved: {found['said']}",
        "From 6 pairs of blocks of 6 s, using the middle 4 s of each; all intervals hold together "
        "with 95% confidence.",
    ]


def test_of_the_same_nothing_is_said() -> None:
    found = told(0)
    assert not any(one["real"] for one in found["differences"]["join"].values())
    assert found["said"].startswith("No significant difference between b and a.")


def test_a_run_that_was_not_steady_calls_nothing_real_and_says_what_is_needed() -> None:
    found = told(2, steady=False)
    assert not any(one["real"] for one in found["differences"]["join"].values())
    assert found["said"].endswith(
        "This is not conclusive: 20260101-000000-abcd was not steady. Needed: a longer warm-up "
        "(--warm-up auto)."
    )


def test_terminal_and_markdown_have_the_decision() -> None:
    report = report_of(interleaved=told(2))
    for text in (shown(report), markdown(report)):
        assert "Interleaved: b is slower in join p50 (+2 ms" in text
    assert "In turns" not in markdown(a_report())
