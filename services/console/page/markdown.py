"""The report of a run as Markdown, for a ticket, a message or a paper's notes. Pure."""

from typing import Any

from analysis.thresholds import sentence
from services.console.attributed import attributed_sentence, floor_sentence
from services.console.interleaved import interleaved_sentences
from services.console.page.ledger import in_words
from services.console.progress import rate_line
from services.console.repeated import complaint_lines, doubt_lines, median_lines, runs_sentence
from services.console.scaling import scaling_header, scaling_rows
from services.console.searched import HEADER, step_cells, step_reasons, steps_of
from services.console.show import (
    EXPIRED,
    FLOOR,
    INTERVALS,
    cost_sentences,
    figure_and_margin,
    has_intervals,
    lag_sentences,
    left_out_sentence,
    restart_sentence,
    start_sentences,
    verdict_sentence,
)
from services.console.warmth import warm_up_sentence
from services.console.watched import watch_sentences
from services.console.ways_in import way_in_sentences

PERCENTILES = ("p50", "p90", "p95", "p99", "p999", "max", "mean")


def markdown(report: dict[str, Any]) -> str:
    """Headings, one table per pipeline, and the environment."""
    source = report["input"]
    lines = [
        f"# {report['workload']}, run {report['run_id']}",
        "",
        f"**{verdict_sentence(report).plain}**",
        "",
        f"Input: {source['records']} records, {source['records_per_second']:.1f}/s. "
        f"Send delay p99: {_figure(source['send_delay_ms']['p99'])} ms.",
    ]
    for way_in in way_in_sentences(report):
        lines += ["", way_in]
    if warmth := warm_up_sentence(report):
        lines += ["", warmth]
    for line in interleaved_sentences(report):
        lines += ["", line]
    if floor := floor_sentence(report):
        lines += ["", floor]
    if whose := attributed_sentence(report):
        lines += ["", whose]
    for text in watch_sentences(report):
        lines += ["", text]
    for text in start_sentences(report):
        lines += ["", text]
    if report.get("seconds_expired"):
        lines += ["", EXPIRED]
    if report.get("left_out"):
        lines += ["", left_out_sentence(report["left_out"])]
    for name, pipeline in report["pipelines"].items():
        lines += ["", f"## {name}", ""]
        for restart in pipeline.get("restarts", ()):
            lines += [restart_sentence(name, pipeline, restart), ""]
        lines += _table(pipeline["stages"], report.get("floor"))
    lines += _search(report)
    if found := report.get("scalability"):
        lines += ["", f"## {found['pipeline']} by workers", "", *_scaling(found)]
    lines += _checks(report)
    told = "Latency in milliseconds, from the latest contributing input to the output"
    sure = any(has_intervals(one["stages"]) for one in report["pipelines"].values())
    lines += ["", f"{told}; {INTERVALS}." if sure else f"{told}."]
    told = " ".join([*lag_sentences(report), *cost_sentences(report)])
    lines += ["", told, "", "## Environment", ""]
    lines += [f"- {key}: {_plain(value)}" for key, value in report["environment"].items()]
    return "\n".join(lines) + "\n"


def _checks(report: dict[str, Any]) -> list[str]:
    """Medians of several runs, thresholds, the comparison with a baseline, and which runs were not
    good or in doubt."""
    rows, lines = report.get("thresholds", ()), []
    if medians := median_lines(report):
        lines += ["", "## All runs", "", *(f"- {line}" for line in medians)]
        if told := runs_sentence(report["repetition"]):
            lines += ["", f"{told}.".capitalize()]
    lines += ["", "## Thresholds", "", *(f"- {sentence(row)}" for row in rows)] if rows else []
    if compared := report.get("baseline"):
        lines += ["", "## Baseline", "", baseline_line(compared)]
    if wrong := complaint_lines(report):
        lines += ["", "## Runs that were not good", "", *(f"- {line}" for line in wrong)]
    if doubts := doubt_lines(report):
        lines += ["", "## Runs in doubt", "", *(f"- {line}" for line in doubts)]
    return lines


def baseline_line(compared: dict[str, Any]) -> str:
    """The comparison with a baseline, and whether it passed."""
    word = {True: "Passed", False: "Failed"}.get(compared["passed"], "Skipped, not passed")
    return f"**{word}:** {compared['said']}"


def _table(stages: dict[str, Any], floor: dict[str, Any] | None) -> list[str]:
    head = ["stage", *PERCENTILES, "outputs/s", "ledger"]
    lines = [_row(head), _row(["---", *["---:"] * (len(PERCENTILES) + 1), "---"])]
    for stage, cell in stages.items():
        latest = cell["latency_ms"].get("latest", {})
        figures = [figure_and_margin(latest, figure) for figure in PERCENTILES]
        rate = f"{cell['records_per_second']:.0f}"
        lines.append(_row([stage, *figures, rate, in_words(cell["verdicts"])]))
    if floor:
        lines.append(_row([FLOOR, *(figure_and_margin(floor, one) for one in PERCENTILES), "", ""]))
    return lines


def _scaling(found: dict[str, Any]) -> list[str]:
    header = list(scaling_header(found))
    rows = [_row(list(row)) for row in scaling_rows(found)]
    return [_row(header), _row(["---:"] * len(header)), *rows, "", " ".join(found["said"])]


def _search(report: dict[str, Any]) -> list[str]:
    """The result of a search, and the evidence and steadiness of its steps."""
    if not (found := report["conclusion"].get("search")):
        return []
    rows = [_row([*step_cells(step), step_reasons(step)]) for step in steps_of(report)]
    table = [_row([*HEADER, "reasons"]), _row(["---"] * (len(HEADER) + 1)), *rows]
    return ["", "## Search", "", rate_line(found), *(["", *table] if rows else [])]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.1f}"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    return str(value)
