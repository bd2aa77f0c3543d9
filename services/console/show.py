"""A report for people: one table per pipeline, costs, and a verdict in one sentence."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.costs import used_by_others
from analysis.intervals import margin
from analysis.recovery import sentence as recovery_sentence
from analysis.thresholds import not_exact, sentence
from schemas.protocol import FAILED_VERDICTS, MACHINE
from services.console.attributed import attributed_lines, waiting_of
from services.console.interleaved import interleaved_sentences
from services.console.progress import rate_line
from services.console.scaling import scaling_table
from services.console.searched import steps_of, steps_table, unsteady_sentences
from services.console.terminal import headed, titled_table
from services.console.warmth import warm_up_sentence
from services.console.watched import is_unmeasured, watch_complaints, watch_sentences
from services.console.ways_in import way_in_sentences

Report = dict[str, Any]
INTERVALS = "±: 95 % confidence interval, from the variation between seconds of this run"
PARTS = {"kafka": "broker"}  # services whose part has another name in `room`
# What qualifies a valid run, by field of its report and value.
BUTS = {
    "steady": (False, "But it was not steady: its figures were still changing."),
    "disturbed": (True, "But it was disturbed: its latencies are not due to the pipeline alone."),
}
UNMEASURED = "But its timestamps cannot measure latency, nor tell which outputs are late."
SHOWN = ("p50", "p95", "p99", "max")
FLOOR = "floor"  # a row beside the stages: the latency of Tidegauge itself
LEAST_CORES = 0.005  # less is shown as 0.00
LEAST_LEDGER = 7  # characters
SHOWN_NAMES = 5
SHOWN_CHARACTERS = 100
EXPIRED = (
    "The latencies of single seconds of this run have expired (docs/sql.md), so the"
    " recovery of stages cannot be shown."
)


def show_report(console: Console, report: Report) -> None:
    """Print a report of `report.build_report`."""
    source = report["input"]
    console.print()
    console.print(
        headed(report["workload"], f"run {report['run_id']}"),
        input_sentence(source),
        *way_in_sentences(report),
        sep="\n",
        soft_wrap=True,
    )
    for name, pipeline in report["pipelines"].items():
        console.print(_stages(name, pipeline, report.get("floor")))
        for restart in pipeline.get("restarts", ()):
            console.print(restart_sentence(name, pipeline, restart), soft_wrap=True)
    if report.get("seconds_expired"):
        console.print(EXPIRED, soft_wrap=True)
    if report.get("left_out"):
        console.print(left_out_sentence(report["left_out"]), soft_wrap=True)
    for start in start_sentences(report):
        console.print(start, soft_wrap=True)
    restarts = report["conclusion"].get("evaluator_restarts")
    if restarts:
        console.print(evaluator_sentence(restarts), soft_wrap=True)
    for name, pipeline in report["pipelines"].items():
        for stage, cell in pipeline["stages"].items():
            for figures in cell.get("recovery", ()):
                console.print(f"{name} {recovery_sentence(stage, figures)}", soft_wrap=True)
    _show_search(console, report)
    if (used := _resources(report)).row_count:
        console.print(used)
    console.print(*lag_sentences(report), *cost_sentences(report), sep="\n", soft_wrap=True)
    if warmth := warm_up_sentence(report):
        style = "" if report["steady"] else "yellow"
        console.print(Text(warmth, style), soft_wrap=True)
    in_turns = [(line, "") for line in (*interleaved_sentences(report), *watch_sentences(report))]
    for line, style in (*in_turns, *attributed_lines(report)):
        console.print(Text(line, style), soft_wrap=True)
    _show_checks(console, report)
    console.print(verdict_sentence(report), soft_wrap=True)
    _show_scaling(console, report)


def _show_search(console: Console, report: Report) -> None:
    """The steps and the result of a search, if any."""
    if steps := steps_of(report):
        console.print(steps_table(steps))
        for line in unsteady_sentences(report):
            console.print(Text(line, "yellow"), soft_wrap=True)
    if "search" in report["conclusion"]:
        console.print(rate_line(report["conclusion"]["search"]), soft_wrap=True)


def _show_checks(console: Console, report: Report) -> None:
    """The thresholds and the comparison with a baseline, if any."""
    for row in report.get("thresholds", ()):
        style = "green" if row["passed"] else "bold red"
        console.print(Text(f"threshold {sentence(row)}", style), soft_wrap=True)
    if compared := report.get("baseline"):
        style = {True: "green", False: "bold red"}.get(compared["passed"], "yellow")
        console.print(Text(compared["said"], style), soft_wrap=True)


def _show_scaling(console: Console, report: Report) -> None:
    """The series that the run belongs to, if any."""
    if found := report.get("scalability"):
        console.print()
        console.print(scaling_table(found))
        console.print(*found["said"], sep="\n", soft_wrap=True, highlight=False)


def input_sentence(source: dict[str, Any]) -> str:
    """The amount of input, and its send delay if it was sent on a schedule."""
    delay = source["send_delay_ms"]
    text = f"input {source['records']} records, {source['records_per_second']:.1f}/s"
    if delay["p50"] is None:
        return text
    late = ", ".join(f"{name} {_ms(delay[name])}" for name in ("p50", "p99", "max"))
    return f"{text}; send delay {late} ms"


def left_out_sentence(left_out: list[str]) -> str:
    """Which results are in no table because their pipeline or stage is not in the run's plan."""
    names = [f"“{name[:SHOWN_CHARACTERS]}”" for name in left_out[:SHOWN_NAMES]]
    more = len(left_out) - len(names)
    names += [f"{more} more"] if more else []
    return f"Results that are not in the run's plan are left out: {', '.join(names)}."


def restart_sentence(name: str, pipeline: dict[str, Any], restart: dict[str, Any]) -> str:
    """The outage of a killed pipeline and its effect on outputs."""
    missing = sum(cell["verdicts"]["missing"] for cell in pipeline["stages"].values())
    lost = f"{missing} are missing" if missing else "none is missing"
    outage_s = restart["outage_s"]
    if outage_s is None:
        return f"{name} was killed and did not recover; of its outputs {lost}."
    late, again = restart["late"], restart["duplicate"]
    return (
        f"{name} was killed and unavailable for {outage_s:.1f} s. As a result {late} outputs were "
        f"late and {again} were duplicates; {lost}."
    )


def start_sentences(report: dict[str, Any]) -> Iterator[str]:
    """Which pipelines were started again before the load, how often and why."""
    for name, found in report["conclusion"].get("starts_again", {}).items():
        times = "once" if found["times"] == 1 else f"{found['times']} times"
        yield (
            f"{name} was started again {times} before the load, because the machine was busy: "
            f"{found['reason']}"
        )


def evaluator_sentence(restarts: int) -> str:
    """How often the evaluator restarted, and why that changes no figure."""
    times = "once" if restarts == 1 else f"{restarts} times"
    return f"The evaluator was restarted {times} and recounted this run from the topics."


def verdict_sentence(report: Report) -> Text:
    """Whether the run is valid and whether every output was correct, in a sentence or two."""
    if not report["valid"]:
        return Text("INVALID: " + " ".join(report["invalid_reasons"]), style="bold red")
    wrong = _not_exact(report)
    if wrong:
        why = "All of this is due to the restart; nothing was lost." if _restarted(report) else ""
        sentence = f"VALID, but the ledger is not clean: {wrong}. {why}".rstrip()
        return Text(sentence, style="bold yellow")
    if not report["conclusion"]["clean"]:
        is_watch = "watch" in report["conclusion"]
        why = " ".join(watch_complaints(report)) if is_watch else "no output was judged."
        return Text(f"VALID, but {why}", style="bold yellow")
    said = "VALID: every expected output was published once, exact and in time."
    if is_unmeasured(report):
        said = f"VALID: every expected output was published once. {UNMEASURED}"
        return Text(said, style="bold yellow")
    buts = [but for name, (value, but) in BUTS.items() if report.get(name) is value]
    return Text(" ".join((said, *buts)), "bold yellow" if buts else "bold green")


def _restarted(report: Report) -> bool:
    """Whether restarts explain all late and duplicate outputs and there are no other errors."""
    for pipeline in report["pipelines"].values():
        verdicts = [cell["verdicts"] for cell in pipeline["stages"].values()]
        for verdict in FAILED_VERDICTS:
            explained = sum(one.get(verdict, 0) for one in pipeline.get("restarts", ()))
            if sum(one[verdict] for one in verdicts) > explained:
                return False
    return True


def is_clean(report: Report) -> bool:
    """Whether every output was correct, also those after the conclusion."""
    return bool(report["conclusion"]["clean"]) and not _not_exact(report)


def _not_exact(report: Report) -> str:
    found = []
    for name, pipeline in report["pipelines"].items():
        for stage, cell in pipeline["stages"].items():
            if bad := not_exact(cell["verdicts"]):
                found.append(f"{name} {stage} has {bad}")
    return "; ".join(found)


def _stages(name: str, pipeline: dict[str, Any], floor: dict[str, Any] | None) -> Table:
    table = titled_table(name)
    table.add_column("stage", no_wrap=True)
    costs = ("added",) if has_costs(pipeline["stages"]) else ()
    for column in (*SHOWN, *costs, "outputs", "per s", "exact", "ledger"):
        is_ledger = column == "ledger"
        least = LEAST_LEDGER if is_ledger else None
        table.add_column(column, justify="right", overflow="fold", min_width=least)
    for stage, cell in pipeline["stages"].items():
        latest = cell["latency_ms"].get("latest", {})
        bad = not_exact(cell["verdicts"])
        table.add_row(
            stage,
            *(figure_and_margin(latest, figure) for figure in SHOWN),
            *(stage_cost(cell) for _ in costs),
            str(cell["outputs"]),
            f"{cell['records_per_second']:.0f}",
            str(cell["verdicts"]["exact"]),
            Text(bad, style="red") if bad else _unspoiled(cell["verdicts"]),
        )
    if floor:
        table.add_row(FLOOR, *(_ms(floor[figure]) for figure in SHOWN), style="dim")
    table.caption = "ms from latest input to output"
    if has_intervals(pipeline["stages"]):
        table.caption += f"; {INTERVALS}"
    if costs:
        table.caption += "; added: p50 minus the p50 of the stage it reads"
    table.caption_justify = "left"
    return table


def has_costs(stages: dict[str, Any]) -> bool:
    """Whether a pipeline computes stages from other stages, so that stages have a cost."""
    return any(cell.get("cost_ms") for cell in stages.values())


def has_intervals(stages: dict[str, Any]) -> bool:
    """Whether any stage has intervals of its latencies."""
    return any(cell["latency_ms"].get("latest", {}).get("intervals") for cell in stages.values())


def figure_and_margin(latency: dict[str, Any], figure: str) -> str:
    """`9 ±1`, or the figure alone if its interval is not known."""
    within = margin(latency, figure)
    told = _ms(latency.get(figure))
    return told if within is None else f"{told} ±{_rounded(within)}"


def _rounded(within: float) -> str:
    return str(within) if isinstance(within, int) else f"{within:.2g}"


def stage_cost(cell: dict[str, Any]) -> str:
    """What a stage adds to the p50 of the nearest measured stage that it reads, in ms."""
    cost = cell.get("cost_ms")
    return f"{cost['p50']:+d}" if cost else ""


def _unspoiled(verdicts: dict[str, int]) -> Text:
    """The ledger of a stage without bad verdicts: a dash if nothing was judged."""
    return Text("clean", style="green") if any(verdicts.values()) else Text("–")


def _resources(report: Report) -> Table:
    table = titled_table("resources")
    table.add_column("service")
    for column in ("CPU cores", "waiting", "memory MB", "heap MB"):
        table.add_column(column, justify="right")
    rows = {name: one["resources"] for name, one in report["pipelines"].items()}
    rows.update(report["services"])
    for name in sorted(rows, key=lambda name: name == MACHINE):  # the sum comes last
        if name == MACHINE and (others := used_by_others(rows)) is not None:
            table.add_row("other processes", f"{others:.2f}", "", "", "")
        if name == MACHINE and (stolen := _stolen_cores(report)) >= LEAST_CORES:
            table.add_row("hypervisor (steal)", f"{stolen:.2f}", "", "", "")
        if figures := rows[name]:
            used = (figures.get(f"{name}_bytes_max") for name in ("memory", "heap_used"))
            waiting = waiting_of(report, PARTS.get(name, name))
            cores = f"{figures['cpu_cores']:.2f}"
            table.add_row(name, cores, waiting, *(_megabytes(one) for one in used))
    if any(waiting_of(report, PARTS.get(name, name)) for name in rows):
        table.caption = (
            "waiting: share of its runnable time in which a process waited for a core; machine: "
            "share of the time in which any task did"
        )
        table.caption_justify = "left"
    return table


def _stolen_cores(report: Report) -> float:
    """Mean number of cores that a hypervisor gave to others; 0 if not known."""
    cores = report["environment"].get("cores") or 0
    machine = (report.get("room") or {}).get(MACHINE, {})
    return float(cores * (machine.get("steal_share") or 0))


def _megabytes(value: float | None) -> str:
    """Empty if not known: a process that is no JVM has no heap."""
    return "" if value is None else f"{value / 1e6:.0f}"


def lag_sentences(report: Report) -> list[str]:
    """How far behind the pipelines read, in one sentence; none if no pipeline reported it."""
    lags = [
        f"{name} {lag['max']} and {lag['end']}"
        for name, one in report["pipelines"].items()
        if (lag := one.get("lag_records")) is not None
    ]
    return [f"Lag in records, maximum and at the end: {', '.join(lags)}."] if lags else []


def cost_sentences(report: Report) -> list[str]:
    """What each pipeline cost per record, and the cost of observing it, if known."""
    texts = [
        f"{name} used {per_million:.0f}{_within(one['resources'])} core-seconds per million input "
        "records."
        for name, one in report["pipelines"].items()
        if (per_million := one["resources"].get("core_seconds_per_million_records")) is not None
    ]
    observing = report.get("observing")
    if observing:
        share = f", {observing['share']:.0%} of all CPU time used" if observing["share"] else ""
        texts.append(f"Tidegauge itself used {observing['cpu_cores']:.2f} cores{share}.")
    return texts


def _within(used: dict[str, Any]) -> str:
    bounds = used.get("core_seconds_interval")
    if bounds is None:
        return ""
    cost = used["core_seconds_per_million_records"]
    return f" ±{max(cost - bounds[0], bounds[1] - cost):.0f}"


def _ms(value: float | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.1f}"
