"""The steps of a search in its report: terminal, Markdown and HTML."""

import re
from typing import Any

import pytest

from schemas.report import Report
from services.console.report import ci
from services.console.report import html as html_form
from tests.unit.conductor.search_events import A_RESULT
from tests.unit.console.test_show import a_report, shown
from tests.unit.requests import a_request

pytestmark = pytest.mark.unit

MOVING = [f"p {stage}: p50 fell by 14 ms" for stage in ("ingest", "parse", "join", "tumbling")]
STEPS: list[dict[str, Any]] = [
    {
        **{"step": 1, "rate_per_second": 4000.0, "measured_s": 15, "warm_up_s": 23},
        **{"sustained": True, "undecided": False, "limited_by": "", "reasons": []},
        **{"steady": False, "moving": MOVING},
    },
    {
        **{"step": 3, "rate_per_second": 8000.0, "measured_s": 60, "warm_up_s": 12},
        **{"sustained": False, "undecided": False, "limited_by": "pipeline"},
        **{"reasons": ["parse: median latency rises."], "steady": True, "moving": []},
    },
]
UNDECIDED = {
    **{"step": 4, "rate_per_second": 5657.0, "measured_s": 15, "warm_up_s": None},
    **{"sustained": False, "undecided": True, "limited_by": "", "reasons": []},
    **{"steady": None, "moving": []},
}


def page(report: dict[str, Any], request: dict[str, Any], lines: None) -> str:
    return html_form.page(Report.model_validate(report), request, lines)


def markdown(report: dict[str, Any]) -> str:
    return ci.markdown(Report.model_validate(report))


def a_search(*steps: dict[str, Any]) -> dict[str, Any]:
    return a_report() | {"conclusion": {"clean": True, "search": A_RESULT | {"steps": list(steps)}}}


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"\||  +|<td>|</td>", line) if cell.strip()]


def test_the_terminal_tells_of_each_step_whether_it_was_steady() -> None:
    text = shown(a_search(*STEPS, UNDECIDED, STEPS[-1] | {"step": 5, "cold": True}))
    begin = text.index("steps of the search")
    lines = [cells_of(line) for line in text[begin:].splitlines()]
    assert ["1", "4000", "23 s", "15 s", "sustained", "no"] in lines
    assert ["3", "8000", "12 s", "60 s", "NOT sustained", "pipeline", "yes"] in lines
    assert ["4", "5657", "–", "15 s", "undecided", "–"] in lines
    assert ["5", "8000", "12 s", "60 s", "NOT sustained, cold", "pipeline", "yes"] in lines
    assert (
        "The step at 4000/s was sustained, but not steady: p ingest: p50 fell by 14 ms; p parse: "
        "p50 fell by 14 ms; p join: p50 fell by 14 ms; and 1 more.\n"
    ) in text
    assert text.count("but not steady") == 1
    assert "Sustainable: 5820 records/s" in text[begin:]


def test_markdown_and_html_have_the_same_steps_with_their_reasons() -> None:
    report = a_search(*STEPS)
    html = page(report, a_request().model_dump(mode="json"), None)
    for text in (markdown(report), html.replace("<tr>", "\n")):
        assert "Sustainable: 5820 records/s" in text
        rows = [cells_of(line) for line in text.splitlines()]
        (second,) = [row for row in rows if row[:2] == ["3", "8000"]]
        assert second[2:7] == ["12 s", "60 s", "NOT sustained", "pipeline", "yes"]
        assert second[7].startswith("parse: median latency rises.")
        (first,) = [row for row in rows if row[:2] == ["1", "4000"]]
        assert "no" in first
        assert any(cell.startswith("Not steady: p ingest: p50 fell") for cell in first)


def test_a_run_without_a_search_has_no_steps() -> None:
    report = a_report()
    html = page(report, a_request().model_dump(mode="json"), None)
    for text in (shown(report), markdown(report), html):
        assert "Sustainable" not in text
        assert "search for" not in text.lower()
        assert "steps of the search" not in text
