"""A report as Markdown, for a ticket, a message or a paper's notes. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from analysis.thresholds import sentence
from schemas.report import Latency, Report, StageReport
from services.console.report.tables import (
    FLOOR,
    STEP_HEADER,
    has_intervals,
    latency_cells,
    ledger_cell,
    scaling_header,
    scaling_rows,
    step_cells,
)
from services.console.report.words import (
    INTERVALS,
    baseline_sentence,
    complaint_lines,
    cost_sentences,
    doubt_lines,
    lag_sentences,
    median_lines,
    ms,
    remarks,
    restart_sentence,
    runs_sentence,
    search_sentence,
    step_reasons,
    verdict,
    warm_up_sentence,
    way_in_sentences,
)

PERCENTILES = ("p50", "p90", "p95", "p99", "p999", "max", "mean")


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
        yield from (restart_sentence(name, pipeline, one) for one in pipeline.restarts)
        yield _stages(pipeline.stages, report.floor)
    if search := report.conclusion.search:
        yield "## Search"
        yield search_sentence(search)
        if search.steps:
            rows = [(*step_cells(step), step_reasons(step)) for step in search.steps]
            yield _table((*STEP_HEADER, "reasons"), rows)
    if series := report.scalability:
        yield f"## {series.pipeline} by workers"
        header = scaling_header(series)
        yield _table(header, scaling_rows(series), ["---:"] * len(header))
        yield " ".join(series.said)
    yield from _checks(report)
    about = "Latency in milliseconds, from the latest contributing input to the output"
    has_any = any(has_intervals(pipeline.stages) for pipeline in report.pipelines.values())
    yield f"{about}; {INTERVALS}." if has_any else f"{about}."
    yield " ".join([*lag_sentences(report), *cost_sentences(report)])
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
    header = ("stage", *PERCENTILES, "outputs/s", "ledger")
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
