"""The page of a run: results in words, figures and charts. Pure.

One self-contained file: styles and pictures are inline, and its policy forbids the browser to load
anything else. It is readable on a phone and printable. Curves of a chart differ in colour, dashes
and the name at their end.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from analysis.comparability import Request
from analysis.thresholds import sentence
from schemas.percentiles import RANKED, shown
from schemas.protocol import MACHINE, VERDICTS
from schemas.report import (
    Bounded,
    Latency,
    Number,
    PipelineReport,
    Report,
    Scalability,
    SearchResult,
    StageReport,
    ThresholdResult,
)
from services.console.report import charts
from services.console.report.charts import (
    ChartFrame,
    Line,
    Markup,
    amount,
    element,
    joined,
    line_chart,
    whole_page,
    wide_table,
)
from services.console.report.tables import (
    FLOOR,
    STEP_HEADER,
    USAGE_HEADER,
    has_costs,
    has_intervals,
    latency_cells,
    ledger_cell,
    scaling_header,
    scaling_rows,
    stage_cost,
    step_cells,
    usage_rows,
)
from services.console.report.words import (
    INTERVALS,
    complaint_lines,
    cost_sentences,
    delay_sentences,
    doubt_lines,
    lag_sentences,
    median_lines,
    remarks,
    restart_sentence,
    runs_sentence,
    search_sentence,
    step_reasons,
    verdict,
    warm_up_sentence,
    way_in_sentences,
)
from services.readmodel import timelines
from services.readmodel.timelines import Timelines

PERCENTILES = (*RANKED, "mean")
SHOWN_SERVICES = 8
COUNTING = (
    "Every output is counted at its exact millisecond; percentiles are nearest rank. An output "
    "belongs to the"
)
READING = (
    "All timestamps are from the broker: latency is the LogAppendTime of an output minus that of "
    f"its latest contributing input. {COUNTING} phase in which its latest input was scheduled. "
    "Tables and distributions cover the measured phase."
)
READING_OF_WATCH = (
    "Latency is the timestamp of an output in its topic minus that of its latest contributing "
    f"input. {COUNTING} run in which its latest input has its timestamp."
)
INPUT_STYLE = 5  # index in charts.STYLES
GAP_SPANS = 10  # a curve is interrupted after this many points without data
MEASURED_STYLE, LAW_STYLE, BOUND_STYLE = 5, 3, 0  # of a series
COLOURS = {
    "exact": "#0072B2",
    "wrong": "#D55E00",
    "missing": "#1c2530",
    "late": "#E69F00",
    "duplicate": "#CC79A7",
    "unexpected": "#8C8C8C",
}
BAR_WIDTH, BAR_ROW, BAR = 420.0, 31.0, 9.0
LEAST = 3.0


def page(report: Report, request: Request, timelines: Timelines | None) -> Markup:
    """The page as HTML. request: of the run. timelines: None if the load never began."""
    sections = [_head(report, request)]
    if report.thresholds:
        sections.append(_thresholds(report.thresholds))
    sections += _several(report)
    for name, pipeline in report.pipelines.items():
        sections.append(_pipeline(name, pipeline, report.floor, timelines))
    if report.conclusion.search:
        sections.append(_search(report.conclusion.search))
    if report.scalability:
        sections.append(_scaling(report.scalability))
    sections.append(_ledger(report))
    if timelines is not None and timelines.cpu_cores:
        sections.append(_resources(report, timelines))
    text = READING if report.watch is None else f"{report.watch.times} {READING_OF_WATCH}"
    sections.append(_section("How to read this", element("p", text)))
    sections.append(_provenance(report, request))
    return whole_page(f"{report.workload} {report.run_id}", element("body", *sections))


def _head(report: Report, request: Request) -> Markup:
    source, delay = report.input, report.input.send_delay_ms
    phases = request["workload"].get("phases")  # absent for a watch
    facts = {
        "input records": f"{source.records:,}".replace(",", " "),
        "input per second": amount(source.records_per_second or 0),
    }
    if phases is not None:
        warmed_s = (report.warm_up and report.warm_up.seconds) or phases["warm_up_s"]
        facts |= {
            "measured": f"{phases['measure_s']} s",
            "warm-up": f"{warmed_s} s",
            "send delay p50": _ms(delay.p50),
            "send delay p99": _ms(delay.p99),
        }
    cells = [element("div", element("dt", k), element("dd", v)) for k, v in facts.items()]
    text, kind = verdict(report)
    what = f"run {report.run_id} · {', '.join(report.pipelines)}"
    warmth, is_steady = warm_up_sentence(report), report.steady
    return element(
        "header",
        element("h1", report.workload),
        element("p", what, class_="soft"),
        element("p", request["workload"]["summary"]),
        element("p", text, class_=f"verdict {kind}"),
        *(
            [element("p", warmth, class_="soft" if is_steady else "verdict mixed")]
            if warmth
            else []
        ),
        *(
            element("p", text, class_="soft")
            for text in (*way_in_sentences(report), *remarks(report))
        ),
        element("dl", *cells, class_="facts"),
    )


def _section(title: str, *content: Markup) -> Markup:
    return element("section", element("h2", title), *content)


def _pipeline(
    name: str, pipeline: PipelineReport, floor: Latency | None, timelines: Timelines | None
) -> Markup:
    parts = [
        element("p", restart_sentence(name, pipeline, restart)) for restart in pipeline.restarts
    ]
    parts.append(_latency_table(pipeline.stages, floor))
    if timelines is not None:
        parts.append(_latency_charts(name, tuple(pipeline.stages), timelines))
    return _section(name, *parts)


def _search(search: SearchResult) -> Markup:
    """The result of a search, and the evidence and steadiness of its steps."""
    rows = [(*step_cells(step), step_reasons(step)) for step in search.steps]
    table = [wide_table((*STEP_HEADER, "reasons"), rows)] if rows else []
    sentence = element("p", search_sentence(search))
    return _section("Search for the sustainable rate", sentence, *table)


def _latency_table(stages: dict[str, StageReport], floor: Latency | None) -> Markup:
    costs = ("added",) if has_costs(stages) else ()
    rows = [_row("th", "stage", *map(shown, PERCENTILES), *costs, "outputs/s")]
    for stage, cell in stages.items():
        cost = (stage_cost(cell) for _ in costs)
        rate = amount(cell.records_per_second or 0)
        rows.append(_row("td", stage, *latency_cells(cell.latest, PERCENTILES), *cost, rate))
    if floor:
        rows.append(_row("td", FLOOR, *latency_cells(floor, PERCENTILES), *("" for _ in costs), ""))
    caption = "Milliseconds from the latest contributing input to the output"
    caption += f"; {INTERVALS}" if has_intervals(stages) else ""
    if costs:
        caption += "; added: p50 minus the p50 of the stage it reads"
    return element("div", element("table", element("caption", caption), *rows), class_="wide")


def _thresholds(rows: list[ThresholdResult]) -> Markup:
    return _section("Thresholds", *(_checked(row.passed, sentence(row)) for row in rows))


def _checked(passed: bool | None, text: str) -> Markup:
    kind = {True: "good", False: "bad", None: "mixed"}[passed]
    return element("p", text, class_=f"verdict {kind}")


def _several(report: Report) -> list[Markup]:
    """Medians of several runs, which of these were not good or in doubt, and the comparison with a
    baseline."""
    sections = []
    if lines := median_lines(report):
        runs = runs_sentence(report)
        lines += [f"{runs}.".capitalize()] if runs else []
        wrong = [*complaint_lines(report), *doubt_lines(report)]
        paragraphs = [element("p", line) for line in lines]
        sections.append(
            _section("All runs", *paragraphs, *(_checked(None, line) for line in wrong))
        )
    if compared := report.baseline:
        sections.append(_section("Baseline", _checked(compared.passed, compared.said)))
    return sections


def _row(tag: str, *cells: str) -> Markup:
    return element("tr", *(element(tag, cell) for cell in cells))


def _latency_charts(name: str, stages: tuple[str, ...], lines: Timelines) -> Markup:
    span_s = lines.latency_span_s
    seconds = "each second" if span_s == 1 else f"each {span_s:g} s"
    top = _highest(lines.p99_ms)
    shade, gap_s = _measured(lines), GAP_SPANS * span_s
    drawn = []
    for title, result in (
        (f"Median latency of {seconds}", lines.median_ms),
        (f"99th percentile of {seconds}", lines.p99_ms),
    ):
        label = f"{title}: {name}"
        frame = ChartFrame(label, "seconds", "ms", lines.end_s, top, log_y=True, shade=shade)
        drawn.append(
            _figure(title, line_chart(frame, _curves(stages, result.get(name, {}), gap_s)))
        )
    shares = lines.shares.get(name, {})
    most = max((points[-1][0] for points in shares.values()), default=1.0)
    frame = ChartFrame(f"Distribution: {name}", "milliseconds", "%", most, 100.0, log_x=True)
    title = "Share of measured outputs with at most this latency"
    drawn.append(_figure(title, line_chart(frame, _curves(stages, shares))))
    drawn.append(_throughput(name, stages, lines))
    return element("div", *drawn, class_="charts")


def _throughput(name: str, stages: tuple[str, ...], lines: Timelines) -> Markup:
    outputs = _curves(stages, lines.records.get(name, {}))
    curves = [Line("input", lines.input_records, INPUT_STYLE), *outputs]
    title = "Records per second, in and out"
    label = f"{title}: {name}"
    frame = ChartFrame(label, "seconds", "per s", lines.end_s, shade=_measured(lines))
    return _figure(title, line_chart(frame, curves))


def _curves(
    stages: tuple[str, ...], by_stage: dict[str, timelines.Curve], apart: float = math.inf
) -> list[Line]:
    """Curves of the stages in order; none uses the style of the input."""
    styled = ((stage, place + (place >= INPUT_STYLE)) for place, stage in enumerate(stages))
    return [
        Line(stage, by_stage[stage], style, apart) for stage, style in styled if stage in by_stage
    ]


def _measured(lines: Timelines) -> tuple[float, float, str] | None:
    return lines.measure and (*lines.measure, "measured")


def _highest(by_stage: timelines.ByStage) -> float:
    """The common maximum, so that all pipelines of a run are drawn to one scale."""
    return max(
        (y for stages in by_stage.values() for p in stages.values() for _x, y in p), default=1
    )


def _ledger(report: Report) -> Markup:
    bars = element("div", ledger_bars(report), class_="charts")
    return _section("Ledger: was every output right?", bars, ledger_table(report))


def _resources(report: Report, lines: Timelines) -> Markup:
    shade = _measured(lines)
    drawn = []
    for title, unit, result in (
        ("Processor cores in use", "cores", lines.cpu_cores),
        ("Memory in use", "MB", {k: v for k, v in lines.memory_mb.items() if k != MACHINE}),
    ):
        most = sorted(result, key=lambda name: -sum(y for _x, y in result[name]))[:SHOWN_SERVICES]
        curves = [Line(name, result[name], number) for number, name in enumerate(most)]
        frame = ChartFrame(title, "seconds", unit, lines.end_s, shade=shade)
        drawn.append(_figure(title, line_chart(frame, curves)))
    words = (
        "The services that use most; ",
        element("i", MACHINE),
        " includes all other processes. ",
        " ".join([*lag_sentences(report), *delay_sentences(report), *cost_sentences(report)]),
    )
    rows = usage_rows(report)
    return _section(
        "Resources",
        element("p", *words),
        element("div", *drawn, class_="charts"),
        *([wide_table(USAGE_HEADER, rows)] if rows else []),
    )


def _figure(title: str, picture: Markup) -> Markup:
    return element("figure", element("h3", title), picture)


def _provenance(report: Report, request: Request) -> Markup:
    rows = {f"{key}": value for key, value in report.environment.items()}
    rows |= {f"workload: {key}": value for key, value in request["workload"].items()}
    rows["seed"] = request.get("seed", 0)
    for pipeline in request["pipelines"]:
        known = {key: value for key, value in pipeline.items() if value not in (None, "", [], {})}
        rows[f"pipeline {pipeline['name']}"] = known
    cells = joined(_row("td", name, _plain(value)) for name, value in rows.items())
    table = element("table", cells, class_="settings")
    return _section("What was run, and where", table)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(each)}" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(_plain(each) for each in value)
    return value if isinstance(value, str) else json.dumps(value)


def _ms(value: float | None, unit: str = " ms") -> str:
    if value is None:
        return "–"
    return f"{value}{unit}" if isinstance(value, int) else f"{value:.1f}{unit}"


def _scaling(series: Scalability) -> Markup:
    """The scalability of a pipeline: measured rates, the law, a table."""
    return _section(
        f"{series.pipeline} by workers",
        *(element("p", sentence) for sentence in series.said),
        element("div", _scaling_chart(series), class_="charts"),
        wide_table(scaling_header(series), scaling_rows(series)),
    )


def _scaling_chart(series: Scalability) -> Markup:
    title = "Sustainable rate by workers"
    measured = [(float(point.workers), point.rate_per_second) for point in series.points]
    predicted = [(float(each.workers), each.rate_per_second) for each in series.predicted]
    curves = [
        Line("sustained", _bounds(measured, "low"), MEASURED_STYLE),
        Line("too high", _bounds(measured, "high"), MEASURED_STYLE),
        Line("law", _bounds(predicted, "value"), LAW_STYLE),
        Line("from", _bounds(predicted, "low"), BOUND_STYLE),
        Line("to", _bounds(predicted, "high"), BOUND_STYLE),
    ]
    most = max((x for curve in curves for x, _y in curve.points), default=1.0)
    last = max(series.evidence, default=0)
    shade = (float(last), most, "no evidence") if last < most else None
    frame = ChartFrame(f"{title}: {series.pipeline}", "workers", "per s", most, shade=shade)
    return _figure(title, line_chart(frame, curves))


def _bounds(rates: Iterable[tuple[float, Bounded | None]], name: str) -> timelines.Curve:
    known = ((workers, getattr(rate, name)) for workers, rate in rates if rate)
    return tuple((workers, value) for workers, value in known if value is not None)


def ledger_bars(report: Report) -> Markup:
    """One picture per pipeline with a bar per stage: the share of each verdict. Every verdict that
    occurs is visible (at least LEAST wide) and written above the bar."""
    return joined(_bars(name, each.stages) for name, each in report.pipelines.items())


def ledger_table(report: Report) -> Markup:
    """All counts."""
    rows = [element("tr", element("th", "stage"), *(element("th", v) for v in VERDICTS))]
    for name, pipeline in report.pipelines.items():
        for stage, cell in pipeline.stages.items():
            counts = (_count(verdict, cell.verdicts[verdict]) for verdict in VERDICTS)
            rows.append(element("tr", element("td", f"{name} {stage}"), *counts))
    caption = element("caption", "Verdicts of the measured phase")
    return element("div", element("table", caption, *rows), class_="wide")


def widths(verdicts: Mapping[str, Number], whole: float) -> dict[str, float]:
    """Width of each verdict that occurs; they sum to `whole`, each at least LEAST."""
    counts = {verdict: max(0, verdicts[verdict]) for verdict in VERDICTS}
    total = sum(counts.values())
    if not total:
        return {}
    shares = {v: max(LEAST, whole * count / total) for v, count in counts.items() if count}
    largest = max(shares, key=lambda name: shares[name])
    shares[largest] -= sum(shares.values()) - whole
    return shares


def _bars(pipeline: str, stages: dict[str, StageReport]) -> Markup:
    parts, y = [], 14.0
    for stage, cell in stages.items():
        parts.append(_bar(stage, cell, y))
        y += BAR_ROW
    label = f"Share of each verdict, by stage: {pipeline}"
    return element(
        "figure", element("h3", pipeline), charts.picture(BAR_WIDTH, y - 10, label, *parts)
    )


def _bar(label: str, cell: StageReport, y: float) -> Markup:
    parts = [charts.text(0, y, label, "start", "name")]
    parts.append(charts.text(BAR_WIDTH, y, ledger_cell(cell), "end", "unit"))
    x = 0.0
    for name, width in widths(cell.verdicts, BAR_WIDTH).items():
        parts.append(charts.rectangle(x, y + 4, max(1.0, width - 1), BAR, COLOURS[name]))
        x += width
    return joined(parts)


def _count(verdict: str, count: Number) -> Markup:
    trouble = {"class_": "trouble"} if count and verdict != "exact" else {}
    return element("td", count, **trouble)
