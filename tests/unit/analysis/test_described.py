"""Figures of a comparison that are described, not decided."""

from typing import Any

import pytest

from analysis.costs import COST
from analysis.described import in_words, of_reports, plain
from schemas.report import Described
from tests.unit.reports import report_of

pytestmark = pytest.mark.unit


def a_report(
    cost: float | None, rate: float = 400.0, found: float | None = None, within: float | None = None
) -> dict[str, Any]:
    """A run of one pipeline and stage. found: by its search; within: half the interval of the
    cost."""
    bounds = [cost - within, cost + 2 * within] if cost is not None and within else None
    used = {COST: cost, "core_seconds_interval": bounds}
    one = {"stages": {"join": {"records_per_second": rate}}, "resources": used}
    search = {} if found is None else {"search": {"rate_per_second": found}}
    return {"pipelines": {"p": one}, "conclusion": {"clean": True, **search}}


def rows(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["figure"]: row for row in map(Described.as_json, described(before, after))}


def described(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[Described]:
    sides = [("p", [*map(report_of, side)]) for side in (before, after)]
    return of_reports(sides[0], sides[1], ["join"])


def test_of_several_runs_the_intervals_are_from_how_runs_vary() -> None:
    before = [a_report(cost, 400.0, 50_000.0 + cost) for cost in (10, 11, 12, 13, 14)]
    after = [a_report(cost + 10, 300.0, 40_000.0 + cost) for cost in (10, 11, 12, 13, 14)]
    found = rows(before, after)
    cost = found[COST]
    # 10 ± 2.306 (t of 8) · √(2 · 2.5 / 5)
    assert (cost["low"], cost["value"], cost["high"]) == pytest.approx(
        (7.694, 10.0, 12.306), abs=0.001
    )
    assert (cost["stage"], cost["before"], cost["after"]) == ("", 12.0, 22.0)
    assert (found["records_per_second"]["stage"], found["records_per_second"]["value"]) == (
        "join",
        -100,
    )
    assert found["sustainable_rate_per_second"]["value"] == -10_000
    assert found["sustainable_rate_per_second"]["unit"] == "records/s"


def test_of_one_run_each_the_cost_has_an_interval_from_both_of_its_own() -> None:
    found = rows([a_report(30, within=3)], [a_report(40, within=4)])
    cost = found[COST]
    # below: √(4² + 6²), above: √(8² + 3²)
    assert (cost["low"], cost["high"]) == pytest.approx((10 - 52**0.5, 10 + 73**0.5))
    assert found["records_per_second"]["low"] is None
    assert rows([a_report(30)], [a_report(40, within=4)])[COST]["low"] is None


def test_a_figure_that_some_run_does_not_have_is_omitted() -> None:
    found = rows([a_report(None), a_report(30)], [a_report(40), a_report(50, found=7.0)])
    assert list(found) == ["records_per_second"]


def test_a_row_in_words() -> None:
    found = {
        row.figure: row for row in described([a_report(30, within=3)], [a_report(40, within=4)])
    }
    assert in_words(found[COST]) == (
        "cost 30 → 40 core-seconds per million records, +10 (+33%), between +2.79 and +18.5"
    )
    assert in_words(found["records_per_second"]) == (
        "join output rate 400 → 400 records/s, +0 (+0%)"
    )
    assert [plain(one) for one in (0.0123456, 123.456, 1234.5, 1e7)] == [
        "0.0123",
        "123",
        "1234",
        "10000000",
    ]
