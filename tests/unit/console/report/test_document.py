"""The page of a run and its Markdown."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from analysis.repetition import summarise
from schemas.report import BaselineComparison, Report
from services.console.report import ci, html
from services.readmodel.timelines import Timelines, span_of
from tests.unit.console.test_interleaved import one_of_several
from tests.unit.console.test_show import a_report, shown, sure_report
from tests.unit.reports import part_of, report_of
from tests.unit.requests import a_request

pytestmark = pytest.mark.unit

FLAT = tuple((float(second), 4.0) for second in range(20))
BY_STAGE = {"spark-realtime": {"parse": FLAT, "join": FLAT}}
LINES = Timelines(
    end_s=20,
    latency_span_s=1,
    measure=(5, 15),
    median_ms=BY_STAGE,
    p99_ms=BY_STAGE,
    shares=BY_STAGE,
    records=BY_STAGE,
    input_records=FLAT,
    cpu_cores={"kafka": FLAT, "machine": FLAT},
    memory_mb={"kafka": FLAT},
)


def page(report: dict[str, Any] | Report, request: dict[str, Any], lines: Timelines | None) -> str:
    if isinstance(report, dict):
        report = Report.model_validate(report)
    return html.page(report, request, lines)


def markdown(report: dict[str, Any] | Report) -> str:
    return ci.markdown(report_of(report))


class Tags(HTMLParser):
    """Counts elements, and references to anything outside the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.policy: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"]
        self.references += [name for name, _value in attrs if name in ("src", "href", "srcset")]


def a_page(lines: Timelines | None = LINES, **changes: Any) -> str:
    return page({**a_report(), **changes}, a_request().model_dump(mode="json"), lines)


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = a_page()
    found = Tags(text)
    assert found.references == []
    assert not {"script", "link", "iframe", "img"} & set(found.tags)
    assert not re.search(r"url\(|@import|https?:", text)
    assert found.policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_a_pipeline_has_four_charts_and_a_ledger_and_the_run_two_of_resources() -> None:
    assert Tags(a_page()).tags.count("svg") == 4 + 1 + 2


def test_a_run_whose_load_never_began_has_its_reason_and_no_curves() -> None:
    text = a_page(None, valid=False, invalid_reasons=["The run was interrupted."])
    assert "INVALID: The run was interrupted." in text
    assert Tags(text).tags.count("svg") == 1


def test_latencies_by_the_minute_are_called_so_and_drawn_as_lines() -> None:
    minutes = {"spark-realtime": {"join": ((0.0, 4.0), (22.5, 5.0), (82.5, 4.0))}}
    lines = replace(LINES, end_s=90, latency_span_s=60, median_ms=minutes, p99_ms=minutes)
    text = a_page(lines, seconds_expired=True)
    assert "The latencies of single seconds of this run have expired" in text
    assert "Median latency of each 60 s" in text
    assert "each second" not in text
    chart = text.partition("Median latency of each 60 s</h3>")[2].partition("</figure>")[0]
    assert re.findall(r' d="([^"]*)"', chart)[0].count("M") == 1


def test_what_people_wrote_is_shown_not_interpreted() -> None:
    text = a_page(workload="<script>alert(1)</script>", environment={"host": "<img src=x>"})
    assert not {"script", "img"} & set(Tags(text).tags)
    assert "&lt;img src=x&gt;" in text


@pytest.mark.parametrize(
    ("length_s", "span_s"),
    [(45, 1), (240, 1), (241, 2), (7200, 30), (86_400, 600), (10**9, 86_400)],
)
def test_a_long_run_is_shown_in_few_spans(length_s: float, span_s: int) -> None:
    assert span_of(length_s) == span_s


def test_markdown_has_a_row_per_stage() -> None:
    lines = markdown(a_report(missing=3)).splitlines()
    assert (
        "| join | – | – | 5 | – | 8 | 9 | 12 | 20 | – | 25 | 4.2 | 100 | 1000 exact, 3 missing |"
        in lines
    )
    assert "**VALID, but the ledger is not clean: spark-realtime join has 3 missing.**" in lines


def test_page_and_markdown_say_how_sure_a_figure_is() -> None:
    report = sure_report()
    text = page(report, a_request().model_dump(mode="json"), LINES)
    assert "<td>5 ±1</td>" in text
    assert "<td>4.2 ±0.13</td>" in text
    assert "±: 95 % confidence interval, from the variation between seconds of this run" in text
    assert "| join | – | – | 5 ±1 | – | 8 | 9 ±0 | 12 | 20 | – | 25 | 4.2 ±0.13 |" in markdown(
        report
    )
    assert "±" not in markdown(a_report())


def test_page_and_markdown_have_the_results_of_several_runs() -> None:
    late = {"valid": False, "invalid_reasons": ["The generator was late."]}
    runs = [one_of_several(0, 2), one_of_several(1, 2), one_of_several(2, 2, **late)]
    said = "Compared with the baseline x.json: worse in a join p50 (3 → 4 ms)."
    compared = part_of(BaselineComparison, {"said": said, "passed": False})
    report = summarise(runs).model_copy(update={"baseline": compared})
    request = a_request().model_dump(mode="json")
    for text in (page(report, request, LINES), markdown(report)):
        for part in ("a join: p50 11", "Median of the runs", said, "The generator was late."):
            assert part in text
    assert f'<p class="verdict bad">{said}</p>' in page(report, request, LINES)


def test_page_and_markdown_name_the_valid_runs_that_are_in_doubt() -> None:
    late = {"valid": False, "invalid_reasons": ["The generator was late."], "disturbed": True}
    runs = [one_of_several(0, 2), one_of_several(1, 2, steady=False), one_of_several(2, 2, **late)]
    report = summarise(runs)
    assert report.run_id == "run-0"
    request = a_request().model_dump(mode="json")
    for text in (page(report, request, LINES), markdown(report)):
        assert "run-1 was not steady." in text
        assert "run-2 was disturbed" not in text


def test_every_table_of_latencies_has_the_floor() -> None:
    floor = {"count": 4_000, "p50": 1, "p90": 1, "p95": 2, "p99": 3, "max": 7}
    cells = ("floor", *"–––1–123––7")  # from the minimum to the maximum
    assert "".join(f"<td>{cell}</td>" for cell in cells) in a_page(floor=floor)
    row = "| floor | – | – | 1 | – | 1 | 2 | 3 | – | – | 7 | – |  |  |"
    assert row in markdown(a_report() | {"floor": floor})
    lines = shown(a_report() | {"floor": floor}).splitlines()
    assert any(line.split() == ["floor", "1", "2", "3", "7"] for line in lines)
    assert "<td>floor" not in a_page()
    assert "floor" not in markdown(a_report()) + shown(a_report())
