"""A report on the terminal: one table per pipeline, costs, and a verdict in one sentence."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.recovery import sentence as recovery_sentence
from analysis.thresholds import sentence
from schemas.report import Latency, PipelineReport, Report, Scalability, StageReport, StepResult
from services.console.report.tables import (
    FLOOR,
    RESOURCES_HEADER,
    STEP_HEADER,
    clean_cell,
    has_costs,
    has_intervals,
    latency_cells,
    resource_rows,
    scaling_header,
    scaling_rows,
    stage_cost,
    step_cells,
    sweep_tables,
)
from services.console.report.words import (
    EXPIRED,
    INTERVALS,
    complaint_lines,
    cost_sentences,
    definition_sentences,
    delay_sentences,
    doubt_lines,
    evaluator_sentence,
    floor_sentence,
    input_sentence,
    interleaved_sentences,
    lag_sentences,
    left_out_sentence,
    loss_sentences,
    median_lines,
    median_run_sentence,
    repeated_runs,
    restart_sentence,
    runs_sentence,
    search_sentence,
    start_sentences,
    unsteady_sentences,
    verdict,
    warm_up_sentence,
    watch_sentences,
    way_in_sentences,
)
from services.console.terminal import headed, titled_table

SHOWN = ("p50", "p95", "p99", "max")
LEAST_LEDGER = 7  # characters
STYLES = {"good": "bold green", "mixed": "bold yellow", "bad": "bold red"}
PASSED = {True: "green", False: "bold red", None: "yellow"}


def show_report(console: Console, report: Report) -> None:
    """Print a report; of several runs also the medians. Of a command with several values of a
    setting, the runs in one table."""
    console.print()
    if report.sweep is not None:
        console.print(headed(report.workload, f"{len(report.sweep)} choices of settings"))
        for title, header, rows in sweep_tables(report.sweep):
            console.print(_table(title, header, rows))
        _print(console, "Latencies are ms from the latest input to the output.")
        _print(console, *doubt_lines(report), style=STYLES["mixed"])
        _print(console, *complaint_lines(report), style=STYLES["bad"])
        text, kind = verdict(report)
        _print(console, text, style=STYLES[kind])
        return
    console.print(headed(report.workload, f"run {report.run_id}"))
    _print(console, input_sentence(report.input), *way_in_sentences(report))
    for name, pipeline in report.pipelines.items():
        console.print(_stages(name, pipeline, report.floor))
        for restart in pipeline.restarts:
            _print(console, restart_sentence(name, pipeline, restart))
    _print(console, *_notes(report))
    _show_search(console, report)
    if rows := resource_rows(report):
        console.print(_resources(rows))
    _print(console, *lag_sentences(report), *delay_sentences(report), *cost_sentences(report))
    _print(console, warm_up_sentence(report), style="" if report.steady else "yellow")
    _print(console, *interleaved_sentences(report), *watch_sentences(report))
    _print(console, floor_sentence(report))
    _print(console, report.late.said, style="yellow" if report.disturbed else "")
    for row in report.thresholds:
        _print(console, f"threshold {sentence(row)}", style="green" if row.passed else "bold red")
    if compared := report.baseline:
        _print(console, compared.said, style=PASSED[compared.passed])
    text, kind = verdict(report)
    _print(console, text, style=STYLES[kind])
    if report.scalability is not None:
        console.print()
        console.print(_scaling(report.scalability))
        _print(console, *report.scalability.said)
    if report.repetition is not None:
        _show_repetition(console, report)


def _print(console: Console, *lines: str, style: str = "") -> None:
    """Lines that are not wrapped; empty ones are left out."""
    for line in filter(None, lines):
        console.print(Text(line, style), soft_wrap=True)


def _notes(report: Report) -> list[str]:
    """What happened to the run, between its stages and its costs."""
    restarts = report.conclusion.evaluator_restarts
    return [
        *([EXPIRED] if report.seconds_expired else []),
        *([left_out_sentence(report.left_out)] if report.left_out else []),
        *start_sentences(report),
        *definition_sentences(report),
        *loss_sentences(report),
        *([evaluator_sentence(restarts)] if restarts else []),
        *(
            f"{name} {recovery_sentence(stage, recovered)}"
            for name, pipeline in report.pipelines.items()
            for stage, cell in pipeline.stages.items()
            for recovered in cell.recovery
        ),
    ]


def _show_search(console: Console, report: Report) -> None:
    """The steps and the result of a search, if any."""
    search = report.conclusion.search
    if search is None:
        return
    if search.steps:
        console.print(_steps(search.steps))
        _print(console, *unsteady_sentences(report), style="yellow")
    _print(console, search_sentence(search))


def _show_repetition(console: Console, report: Report) -> None:
    """The medians over the runs with their intervals."""
    runs = repeated_runs(report)
    valid = sum(run.valid for run in runs)
    text = f", {valid} valid; {median_run_sentence(report)}."
    console.print(Text.assemble((f"{len(runs)} runs", "bold"), text))
    lines = (*complaint_lines(report), *doubt_lines(report), *median_lines(report))
    _print(console, *(f"  {line}" for line in lines))
    sentences = [runs_sentence(report), "± above: variation between seconds of one run"]
    _print(console, "; ".join(filter(None, sentences)), style="dim")


def _stages(name: str, pipeline: PipelineReport, floor: Latency | None) -> Table:
    stages = pipeline.stages
    table = titled_table(name)
    table.add_column("stage", no_wrap=True)
    costs = ("added",) if has_costs(stages) else ()
    for column in (*SHOWN, *costs, "outputs", "per s", "exact", "ledger"):
        least = LEAST_LEDGER if column == "ledger" else None
        table.add_column(column, justify="right", overflow="fold", min_width=least)
    for stage, cell in stages.items():
        table.add_row(
            stage,
            *latency_cells(cell.latest, SHOWN),
            *(stage_cost(cell) for _ in costs),
            str(cell.outputs),
            f"{cell.records_per_second or 0:.0f}",
            str(cell.verdicts["exact"]),
            _ledger(cell),
        )
    if floor:
        table.add_row(FLOOR, *latency_cells(floor, SHOWN), style="dim")
    caption = ["ms from latest input to output"]
    caption += [INTERVALS] if has_intervals(stages) else []
    caption += ["added: p50 minus the p50 of the stage it reads"] if costs else []
    return _captioned(table, "; ".join(caption))


def _ledger(cell: StageReport) -> Text:
    text = clean_cell(cell)
    return Text(text, {"clean": "green", "–": ""}.get(text, "red"))


def _resources(rows: Sequence[tuple[str, ...]]) -> Table:
    table = _table("resources", RESOURCES_HEADER, rows, left="service")
    if not any(row[RESOURCES_HEADER.index("waiting")] for row in rows):
        return table
    return _captioned(
        table,
        "waiting: share of its runnable time in which a process waited for a core; machine: "
        "share of the time in which any task did",
    )


def _steps(steps: Sequence[StepResult]) -> Table:
    return _table("steps of the search", STEP_HEADER, map(step_cells, steps), left="result")


def _scaling(series: Scalability) -> Table:
    title, header = f"{series.pipeline} by workers", scaling_header(series)
    return _captioned(
        _table(title, header, scaling_rows(series)),
        "latency and core-seconds at the rate of the run; –: not measured or not valid",
    )


def _table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str]], left: str = ""
) -> Table:
    """left: the column that is aligned left."""
    table = titled_table(title)
    for column in header:
        table.add_column(column, justify="left" if column == left else "right")
    for row in rows:
        table.add_row(*row)
    return table


def _captioned(table: Table, caption: str) -> Table:
    table.caption, table.caption_justify = caption, "left"
    return table
