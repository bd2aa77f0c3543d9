"""The page of a run: results in words, figures and charts. Pure.

One self-contained file: styles and pictures are inline, and its policy forbids the browser to load
anything else. It is readable on a phone and printable. Curves of a chart differ in colour, dashes
and the name at their end.
"""

import json
import math
from pathlib import Path
from typing import Any

from analysis.comparability import is_doubtful
from analysis.thresholds import sentence
from schemas.protocol import MACHINE
from services.console.attributed import attributed_sentence, floor_sentence
from services.console.interleaved import interleaved_sentences
from services.console.page.charts import Curve, Frame, amount, line_chart
from services.console.page.ledger import ledger_bars, ledger_table
from services.console.page.markup import Markup, document, element, joined, style_sheet, wide_table
from services.console.page.scaling import scaling_section
from services.console.page.timelines import Timelines
from services.console.progress import rate_line
from services.console.repeated import complaint_lines, doubt_lines, median_lines, runs_sentence
from services.console.searched import HEADER, step_cells, step_reasons, steps_of
from services.console.show import (
    EXPIRED,
    FLOOR,
    INTERVALS,
    cost_sentences,
    figure_and_margin,
    has_costs,
    has_intervals,
    lag_sentences,
    left_out_sentence,
    restart_sentence,
    stage_cost,
    start_sentences,
    verdict_sentence,
)
from services.console.warmth import warm_up_sentence
from services.console.watched import is_unmeasured, watch_sentences
from services.console.ways_in import way_in_sentences

STYLE = Path(__file__).with_name("style.css")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
PERCENTILES = ("min", "p50", "p90", "p95", "p99", "p999", "max", "mean")
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


def page(report: dict[str, Any], request: dict[str, Any], timelines: Timelines | None) -> Markup:
    """The page as HTML. report: of `build_report`; request: of the run, as JSON; timelines: None if
    the load never began."""
    sections = [_head(report, request)]
    if report.get("thresholds"):
        sections.append(_thresholds(report["thresholds"]))
    sections += _several(report)
    for name, pipeline in report["pipelines"].items():
        sections.append(_pipeline(name, pipeline, report.get("floor"), timelines))
    if report["conclusion"].get("search"):
        sections.append(_search(report))
    if found := report.get("scalability"):
        sections.append(scaling_section(found))
    sections.append(_ledger(report))
    if timelines is not None and timelines.cpu_cores:
        sections.append(_resources(report, timelines))
    sections.append(_definitions(report["conclusion"].get("watch")))
    sections.append(_provenance(report, request))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{report['workload']} {report['run_id']}"),
        style_sheet(STYLE.read_text()),
    )
    return document(head, element("body", *sections))


def _head(report: dict[str, Any], request: dict[str, Any]) -> Markup:
    source, delay = report["input"], report["input"]["send_delay_ms"]
    phases = request["workload"].get("phases")  # absent for a watch
    facts = {
        "input records": f"{source['records']:,}".replace(",", " "),
        "input per second": amount(source["records_per_second"]),
    }
    if phases is not None:
        warmed_s = (report.get("warm_up") or {}).get("seconds") or phases["warm_up_s"]
        facts |= {
            "measured": f"{phases['measure_s']} s",
            "warm-up": f"{warmed_s} s",
            "send delay p50": _ms(delay["p50"]),
            "send delay p99": _ms(delay["p99"]),
        }
    clean = report["conclusion"].get("clean")
    is_good = clean and not is_doubtful(report) and not is_unmeasured(report)
    kind = "bad" if not report["valid"] else "good" if is_good else "mixed"
    cells = [element("div", element("dt", k), element("dd", v)) for k, v in facts.items()]
    remarks = interleaved_sentences(report)
    remarks += way_in_sentences(report)
    remarks += [floor] if (floor := floor_sentence(report)) else []
    remarks += [whose] if (whose := attributed_sentence(report)) else []
    remarks += watch_sentences(report)
    remarks += start_sentences(report)
    remarks += [EXPIRED] if report.get("seconds_expired") else []
    remarks += [left_out_sentence(report["left_out"])] if report.get("left_out") else []
    what = f"run {report['run_id']} · {', '.join(report['pipelines'])}"
    return element(
        "header",
        element("h1", report["workload"]),
        element("p", what, class_="soft"),
        element("p", request["workload"]["summary"]),
        element("p", verdict_sentence(report).plain, class_=f"verdict {kind}"),
        *_warmth(report),
        *(element("p", remark, class_="soft") for remark in remarks),
        element("dl", *cells, class_="facts"),
    )


def _warmth(report: dict[str, Any]) -> list[Markup]:
    """Whether the run was steady; highlighted if it was not."""
    sentence = warm_up_sentence(report)
    if not sentence:
        return []
    return [element("p", sentence, class_="soft" if report["steady"] else "verdict mixed")]


def _pipeline(
    name: str,
    pipeline: dict[str, Any],
    floor: dict[str, Any] | None,
    timelines: Timelines | None,
) -> Markup:
    parts = [element("h2", name)]
    for restart in pipeline.get("restarts", ()):
        parts.append(element("p", restart_sentence(name, pipeline, restart)))
    parts.append(_latency_table(pipeline["stages"], floor))
    if timelines is not None:
        parts.append(_latency_charts(name, tuple(pipeline["stages"]), timelines))
    return element("section", *parts)


def _search(report: dict[str, Any]) -> Markup:
    """The result of a search, and the evidence and steadiness of its steps."""
    rows = [(*step_cells(step), step_reasons(step)) for step in steps_of(report)]
    table = [wide_table((*HEADER, "reasons"), rows)] if rows else []
    return element(
        "section",
        element("h2", "Search for the sustainable rate"),
        element("p", rate_line(report["conclusion"]["search"])),
        *table,
    )


def _latency_table(stages: dict[str, Any], floor: dict[str, Any] | None) -> Markup:
    costs = ("added",) if has_costs(stages) else ()
    rows = [_row("th", "stage", *PERCENTILES, *costs, "outputs/s")]
    for stage, cell in stages.items():
        latest = cell["latency_ms"].get("latest", {})
        figures = (figure_and_margin(latest, figure) for figure in PERCENTILES)
        cost = (stage_cost(cell) for _ in costs)
        rows.append(_row("td", stage, *figures, *cost, amount(cell["records_per_second"])))
    if floor:
        figures = (figure_and_margin(floor, figure) for figure in PERCENTILES)
        rows.append(_row("td", FLOOR, *figures, *("" for _ in costs), ""))
    caption = "Milliseconds from the latest contributing input to the output"
    caption += f"; {INTERVALS}" if has_intervals(stages) else ""
    if costs:
        caption += "; added: p50 minus the p50 of the stage it reads"
    return element("div", element("table", element("caption", caption), *rows), class_="wide")


def _thresholds(rows: list[dict[str, Any]]) -> Markup:
    kinds = {True: "verdict good", False: "verdict bad"}
    lines = (element("p", sentence(row), class_=kinds[row["passed"]]) for row in rows)
    return element("section", element("h2", "Thresholds"), *lines)


def _several(report: dict[str, Any]) -> list[Markup]:
    """Medians of several runs, which of these were not good or in doubt, and the comparison with a
    baseline."""
    found = []
    if lines := median_lines(report):
        told = runs_sentence(report["repetition"])
        lines += [f"{told}.".capitalize()] if told else []
        paragraphs = [element("p", line) for line in lines]
        wrong = [*complaint_lines(report), *doubt_lines(report)]
        paragraphs += [element("p", line, class_="verdict mixed") for line in wrong]
        found.append(element("section", element("h2", "All runs"), *paragraphs))
    if compared := report.get("baseline"):
        kind = {True: "verdict good", False: "verdict bad"}.get(compared["passed"], "verdict mixed")
        said = element("p", compared["said"], class_=kind)
        found.append(element("section", element("h2", "Baseline"), said))
    return found


def _row(tag: str, *cells: str) -> Markup:
    return element("tr", *(element(tag, cell) for cell in cells))


def _latency_charts(name: str, stages: tuple[str, ...], lines: Timelines) -> Markup:
    span_s = lines.latency_span_s
    seconds = "each second" if span_s == 1 else f"each {span_s:g} s"
    top = _highest(lines.p99_ms)
    shade, gap_s = _measured(lines), GAP_SPANS * span_s
    charts = []
    for title, found in (
        (f"Median latency of {seconds}", lines.median_ms),
        (f"99th percentile of {seconds}", lines.p99_ms),
    ):
        label = f"{title}: {name}"
        frame = Frame(label, "seconds", "ms", lines.end_s, top, log_y=True, shade=shade)
        charts.append(
            _figure(title, line_chart(frame, _curves(stages, found.get(name, {}), gap_s)))
        )
    shares = lines.shares.get(name, {})
    most = max((points[-1][0] for points in shares.values()), default=1.0)
    frame = Frame(f"Distribution: {name}", "milliseconds", "%", most, 100.0, log_x=True)
    title = "Share of measured outputs with at most this latency"
    charts.append(_figure(title, line_chart(frame, _curves(stages, shares))))
    charts.append(_throughput(name, stages, lines))
    return element("div", *charts, class_="charts")


def _throughput(name: str, stages: tuple[str, ...], lines: Timelines) -> Markup:
    outputs = _curves(stages, lines.records.get(name, {}))
    curves = [Curve("input", lines.input_records, INPUT_STYLE), *outputs]
    title = "Records per second, in and out"
    label = f"{title}: {name}"
    frame = Frame(label, "seconds", "per s", lines.end_s, shade=_measured(lines))
    return _figure(title, line_chart(frame, curves))


def _curves(stages: tuple[str, ...], found: dict[str, Any], apart: float = math.inf) -> list[Curve]:
    """Curves of the stages in order; none uses the style of the input."""
    styled = ((stage, place + (place >= INPUT_STYLE)) for place, stage in enumerate(stages))
    return [Curve(stage, found[stage], style, apart) for stage, style in styled if stage in found]


def _measured(lines: Timelines) -> tuple[float, float, str] | None:
    return lines.measure and (*lines.measure, "measured")


def _highest(found: dict[str, Any]) -> float:
    """The common maximum, so that all pipelines of a run are drawn to one scale."""
    return max((y for stages in found.values() for p in stages.values() for _x, y in p), default=1)


def _ledger(report: dict[str, Any]) -> Markup:
    return element(
        "section",
        element("h2", "Ledger: was every output right?"),
        element("div", ledger_bars(report), class_="charts"),
        ledger_table(report),
    )


def _resources(report: dict[str, Any], lines: Timelines) -> Markup:
    shade = _measured(lines)
    charts = []
    for title, unit, found in (
        ("Processor cores in use", "cores", lines.cpu_cores),
        ("Memory in use", "MB", {k: v for k, v in lines.memory_mb.items() if k != MACHINE}),
    ):
        most = sorted(found, key=lambda name: -sum(y for _x, y in found[name]))[:SHOWN_SERVICES]
        curves = [Curve(name, found[name], number) for number, name in enumerate(most)]
        frame = Frame(title, "seconds", unit, lines.end_s, shade=shade)
        charts.append(_figure(title, line_chart(frame, curves)))
    words = (
        "The services that use most; ",
        element("i", MACHINE),
        " includes all other processes. ",
        " ".join([*lag_sentences(report), *cost_sentences(report)]),
    )
    return element(
        "section",
        element("h2", "Resources"),
        element("p", *words),
        element("div", *charts, class_="charts"),
    )


def _figure(title: str, picture: Markup) -> Markup:
    return element("figure", element("h3", title), picture)


def _definitions(watch: dict[str, Any] | None) -> Markup:
    text = READING if watch is None else f"{watch['times']} {READING_OF_WATCH}"
    return element("section", element("h2", "How to read this"), element("p", text))


def _provenance(report: dict[str, Any], request: dict[str, Any]) -> Markup:
    rows = {f"{key}": value for key, value in report["environment"].items()}
    rows |= {f"workload: {key}": value for key, value in request["workload"].items()}
    rows["seed"] = request.get("seed", 0)
    for pipeline in request["pipelines"]:
        known = {key: value for key, value in pipeline.items() if value not in (None, "", [], {})}
        rows[f"pipeline {pipeline['name']}"] = known
    cells = joined(_row("td", name, _plain(value)) for name, value in rows.items())
    table = element("table", cells, class_="settings")
    return element("section", element("h2", "What was run, and where"), table)


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
