"""A report for other programs and people: JUnit XML, the custom format of github-action-benchmark,
and Markdown for a ticket, a message or a paper's notes. Pure.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from xml.etree import ElementTree

from analysis.costs import COST
from analysis.thresholds import not_exact, sentence
from schemas.percentiles import LEVELS, shown
from schemas.report import BaselineComparison, Latency, Number, Report, RunOutcome, StageReport
from services.console.report.tables import (
    FLOOR,
    STEP_HEADER,
    has_intervals,
    latency_cells,
    ledger_cell,
    scaling_header,
    scaling_rows,
    step_cells,
    sweep_tables,
)
from services.console.report.words import (
    INTERVALS,
    baseline_sentence,
    complaint_lines,
    complaints,
    cost_sentences,
    delay_sentences,
    doubt_lines,
    lag_sentences,
    median_lines,
    ms,
    remarks,
    repeated_runs,
    restart_sentence,
    runs_sentence,
    search_sentence,
    step_reasons,
    verdict,
    warm_up_sentence,
    watch_complaints,
    way_in_sentences,
)

Entry: TypeAlias = dict[str, str | Number]  # of github-action-benchmark
NOT_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
TRACKED = ("p50", "p95", "p99")
PERCENTILES = (*LEVELS, "max", "mean")


def junit(report: Report) -> bytes:
    """One test case each for the run's validity, the outputs of every stage, every threshold,
    pipeline and stage, every figure compared with a baseline, and every one of several runs. What
    was not decided is skipped. The decision over alternating pipelines is a property: it fails
    nothing."""
    cases = [_case("run", "valid", "" if report.valid else " ".join(report.invalid_reasons))]
    for name, pipeline in report.pipelines.items():
        for stage, cell in pipeline.stages.items():
            none = "" if any(cell.verdicts.values()) else "no output was judged"
            bad = not_exact(cell.verdicts) or none
            bad = " ".join(watch_complaints(report)) if report.watch else bad
            cases.append(_case(f"{name}.{stage}", "every output is exact", bad))
    for row in report.thresholds:
        who = ".".join(filter(None, (row.pipeline, row.stage))) or "input"
        cases.append(_case(who, row.threshold, "" if row.passed else sentence(row)))
    cases += _compared(report.baseline)
    for run in _several(report):
        cases.append(_case(f"run.{run.run_id}", "valid and clean", " ".join(complaints(run))))
    facts = {"run_id": report.run_id, "domain": report.domain}
    if report.interleaved:
        facts["interleaved"] = report.interleaved.said
    return _document(cases, f"tidegauge {report.workload}", facts)


def _compared(compared: BaselineComparison | None) -> Iterator[ElementTree.Element]:
    """The figures compared with a baseline. Those of an undecided comparison are skipped, with the
    reason; if the command demands a comparison, one more case fails."""
    if compared is None:
        return
    undecided = compared.said if compared.passed is None else ""
    for row in compared.rows:
        is_worse = not undecided and row.verdict == "worse"
        failure = f"{row.before:.4g} -> {row.now:.4g}" if is_worse else ""
        who = ".".join(filter(None, (row.pipeline, row.stage)))
        yield _case(who, f"{row.figure} is not worse than in the baseline", failure, undecided)
    if not compared.rows:
        yield _case("run", "compared with the baseline", "", undecided)
    if compared.required:
        yield _case("run", "the comparison with the baseline decides", undecided)


def junit_error(reason: str) -> bytes:
    """One test case with an error: there is no report."""
    case = ElementTree.Element("testcase", classname="tidegauge.run", name="finished")
    text = NOT_IN_XML.sub("\ufffd", reason)
    ElementTree.SubElement(case, "error", message=text).text = text
    return _document([case], "tidegauge", {}, errors=1)


def _document(
    cases: Sequence[ElementTree.Element], name: str, facts: Mapping[str, str], errors: int = 0
) -> bytes:
    suite = ElementTree.Element(
        "testsuite",
        name=name,
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(errors),
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
    )
    if facts:
        properties = ElementTree.SubElement(suite, "properties")
        for key, value in facts.items():
            ElementTree.SubElement(properties, "property", name=key, value=value)
    suite.extend(cases)
    whole = ElementTree.Element("testsuites")
    whole.append(suite)
    ElementTree.indent(whole)
    return bytes(ElementTree.tostring(whole, encoding="utf-8", xml_declaration=True)) + b"\n"


def _several(report: Report) -> list[RunOutcome]:
    """The runs of a repetition, or those of a series with increasing numbers of workers."""
    points = report.scalability.points if report.scalability else []
    return [*repeated_runs(report), *(run for point in points for run in point.runs)]


def _case(of: str, name: str, failure: str, skipped: str = "") -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=f"tidegauge.{of}", name=name)
    if failure:
        failure = NOT_IN_XML.sub("\ufffd", failure)
        ElementTree.SubElement(case, "failure", message=failure).text = failure
    elif skipped:
        ElementTree.SubElement(case, "skipped", message=NOT_IN_XML.sub("\ufffd", skipped))
    return case


def benchmark(report: Report) -> bytes:
    """The latencies of a run and its cost per record as `customSmallerIsBetter`; of a search the
    time per record at the rate found, because its latencies are those at that rate. `range` is the
    interval: of a single run, or of the median of repeated ones. Empty for an invalid run."""
    entries = [] if not report.valid else _searched(report) or list(_figures(report))
    extra = {"extra": f"run {report.run_id}"}
    return (json.dumps([entry | extra for entry in entries], indent=2) + "\n").encode()


def _searched(report: Report) -> list[Entry]:
    rate = report.sustainable_rate
    if not rate:
        return []
    (name,) = report.pipelines
    unit = "µs per record at the sustainable rate"
    return [{"name": f"{name} time", "unit": unit, "value": 1e6 / rate}]


def _figures(report: Report) -> Iterator[Entry]:
    for name, pipeline in report.pipelines.items():
        repeated = report.repetition and report.repetition.pipelines.get(name)
        for stage, cell in pipeline.stages.items():
            for figure in TRACKED:
                value, bounds = cell.latest.of(figure), cell.latest.interval(figure)
                if value is None:
                    continue
                entry: Entry = {"name": f"{name} {stage} {figure}", "unit": "ms"}
                if repeated:
                    over_runs = repeated.stages[stage].latency_ms["latest"][figure]
                    yield entry | _ranged(over_runs.median, (over_runs.low, over_runs.high))
                else:
                    yield entry | _ranged(value, bounds)
        cost = pipeline.resources.core_seconds_per_million_records
        if cost is not None:
            entry = {"name": f"{name} cost", "unit": "core-seconds per million records"}
            if repeated and (median := repeated.resources.get(COST)):
                yield entry | _ranged(median.median, (median.low, median.high))
            else:
                yield entry | _ranged(cost, pipeline.resources.core_seconds_interval)


def _ranged(value: Number, bounds: Sequence[Number | None] | None) -> Entry:
    """A figure, with its interval if that is known."""
    low, high = bounds or (None, None)
    entry: Entry = {"value": value}
    return entry | ({} if low is None else {"range": f"{low:g} to {high:g}"})


def markdown(report: Report) -> str:
    """Headings, one table per pipeline, and the environment."""
    return "\n\n".join(filter(None, _paragraphs(report))) + "\n"


def _paragraphs(report: Report) -> Iterator[str]:
    source = report.input
    yield f"# {report.workload}, run {report.run_id}"
    yield f"**{verdict(report)[0]}**"
    yield (
        f"Input: {source.records} records, {source.records_per_second or 0:.1f}/s. "
        f"Send delay p99: {ms(source.send_delay_ms.p99)} ms."
    )
    yield from (*way_in_sentences(report), warm_up_sentence(report), *remarks(report))
    for name, pipeline in report.pipelines.items():
        yield f"## {name}"
        yield from (restart_sentence(name, pipeline, restart) for restart in pipeline.restarts)
        yield _stages(pipeline.stages, report.floor)
    if search := report.conclusion.search:
        yield "## Search"
        yield search_sentence(search)
        if search.steps:
            rows = [(*step_cells(step), step_reasons(step)) for step in search.steps]
            yield _table((*STEP_HEADER, "reasons"), rows)
    for title, titles, cells in sweep_tables(report.sweep) if report.sweep else ():
        yield f"## {title.capitalize()}"
        yield _table(titles, cells)
    if series := report.scalability:
        yield f"## {series.pipeline} by workers"
        header = scaling_header(series)
        yield _table(header, scaling_rows(series), ["---:"] * len(header))
        yield " ".join(series.said)
    yield from _checks(report)
    about = "Latency in milliseconds, from the latest contributing input to the output"
    has_any = any(has_intervals(pipeline.stages) for pipeline in report.pipelines.values())
    yield f"{about}; {INTERVALS}." if has_any else f"{about}."
    yield " ".join([*lag_sentences(report), *delay_sentences(report), *cost_sentences(report)])
    yield "## Environment"
    yield _list(f"{key}: {_plain(value)}" for key, value in report.environment.items())


def _checks(report: Report) -> Iterator[str]:
    """Medians of several runs, thresholds, the comparison with a baseline, and which runs were not
    good or in doubt."""
    runs = runs_sentence(report)
    thresholds = map(sentence, report.thresholds)
    compared = report.baseline
    baseline = f"**{baseline_sentence(compared)}:** {compared.said}" if compared else ""
    for title, text in (
        ("All runs", _list(median_lines(report))),
        ("", f"{runs}.".capitalize() if runs else ""),
        ("Thresholds", _list(thresholds)),
        ("Baseline", baseline),
        ("Runs that were not good", _list(complaint_lines(report))),
        ("Runs in doubt", _list(doubt_lines(report))),
    ):
        if text:
            yield from (f"## {title}" if title else "", text)


def _stages(stages: dict[str, StageReport], floor: Latency | None) -> str:
    header = ("stage", *map(shown, PERCENTILES), "outputs/s", "ledger")
    rows = [
        (
            stage,
            *latency_cells(cell.latest, PERCENTILES),
            f"{cell.records_per_second or 0:.0f}",
            ledger_cell(cell),
        )
        for stage, cell in stages.items()
    ]
    if floor:
        rows.append((FLOOR, *latency_cells(floor, PERCENTILES), "", ""))
    return _table(header, rows, ["---", *["---:"] * (len(header) - 2), "---"])


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], marks: Sequence[str] = ()) -> str:
    """marks: below the header; by default columns are aligned left."""
    lines = (header, marks or ["---"] * len(header), *rows)
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    return str(value)
