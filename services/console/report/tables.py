"""The tables of a report as text, which its forms share: cells by row. Pure."""

from collections.abc import Sequence
from typing import Any

from analysis.costs import used_by_others
from analysis.intervals import margin
from analysis.thresholds import not_exact
from schemas.protocol import MACHINE
from schemas.report import (
    Bounded,
    Latency,
    Number,
    Report,
    Resources,
    Room,
    Scalability,
    StageReport,
    StepResult,
    SweepPoint,
)
from services.console.report.several import FIGURES
from services.console.report.words import ms

FLOOR = "floor"  # a row beside the stages: the latency of Tidegauge itself
STEP_HEADER = ("step", "records/s", "warm-up", "measured", "result", "limited by", "steady")
STEADY: dict[bool | None, str] = {True: "yes", False: "no", None: "–"}
RESOURCES_HEADER = ("service", "CPU cores", "waiting", "memory MB", "heap MB")
USAGE_HEADER = (
    *("pipeline", "process", "CPU cores"),
    *(f"heap {name} MB" for name in ("min", "mean", "max")),
    *("received MB/s", "sent MB/s"),
)
PARTS = {"kafka": "broker"}  # services whose part has another name in `room`
LEAST_CORES = 0.005  # less is shown as 0.00
Stages = dict[str, StageReport]
Cells = tuple[str, ...]


def has_costs(stages: Stages) -> bool:
    """Whether a pipeline computes stages from other stages, so that stages have a cost."""
    return any(cell.cost_ms for cell in stages.values())


def has_intervals(stages: Stages) -> bool:
    """Whether any stage has intervals of its latencies."""
    return any(cell.latest.intervals for cell in stages.values())


def latency_cells(latency: Latency, figures: Sequence[str]) -> list[str]:
    """`9 ±1`, or the figure alone if its interval is not known; a dash without the figure."""
    return [_with_margin(latency, figure) for figure in figures]


def _with_margin(latency: Latency, figure: str) -> str:
    value, within = ms(latency.of(figure)), margin(latency, figure)
    if within is None:
        return value
    return f"{value} ±{within:.0f}" if within >= 10 else f"{value} ±{within:.2g}"


def stage_cost(cell: StageReport) -> str:
    """What a stage adds to the p50 of the nearest measured stage that it reads, in ms."""
    return f"{cell.cost_ms.p50:+d}" if cell.cost_ms else ""


def ledger_cell(cell: StageReport) -> str:
    """`1000 exact`, and all other verdicts that occur."""
    exact = f"{cell.verdicts['exact']} exact"
    return ", ".join(filter(None, (exact, not_exact(cell.verdicts))))


def clean_cell(cell: StageReport) -> str:
    """The bad verdicts of a stage, or `clean`; a dash if nothing was judged."""
    return not_exact(cell.verdicts) or ("clean" if any(cell.verdicts.values()) else "–")


def step_cells(step: StepResult) -> tuple[str, ...]:
    """A step of a search in the columns of STEP_HEADER; a dash if unknown."""
    result = "sustained" if step.sustained else f"NOT sustained{', cold' if step.cold else ''}"
    return (
        str(step.step or "–"),
        f"{step.rate_per_second:.0f}",
        _seconds(step.warm_up_s),
        _seconds(step.measured_s),
        "undecided" if step.undecided else result,
        step.limited_by,
        STEADY[step.steady],
    )


def _seconds(value: Number | None) -> str:
    return "–" if value is None else f"{value:g} s"


def resource_rows(report: Report) -> list[tuple[str, ...]]:
    """Use of every service and pipeline in the columns of RESOURCES_HEADER; the machine is last."""
    rows = {name: pipeline.resources for name, pipeline in report.pipelines.items()}
    rows |= report.services
    cells: list[tuple[str, ...]] = []
    for name in sorted(rows, key=lambda name: name == MACHINE):
        if name == MACHINE and (others := used_by_others(rows)) is not None:
            cells.append(("other processes", f"{others:.2f}", "", "", ""))
        if name == MACHINE and (stolen := _stolen_cores(report)) >= LEAST_CORES:
            cells.append(("hypervisor (steal)", f"{stolen:.2f}", "", "", ""))
        if rows[name].is_known:
            cells.append((name, *_resource_cells(report, name, rows[name])))
    return cells


def _resource_cells(report: Report, name: str, used: Resources) -> tuple[str, ...]:
    room = report.room.get(PARTS.get(name, name), Room())
    waited = room.cpu_pressure_share if name == MACHINE else room.waiting_share
    return (
        f"{used.cpu_cores:.2f}",
        "" if waited is None else f"{waited:.0%}",
        _megabytes(used.memory_bytes_max),
        _megabytes(used.heap_used_bytes_max),
    )


def usage_rows(report: Report) -> list[tuple[str, ...]]:
    """Use of every pipeline and of each of its processes in the columns of USAGE_HEADER."""
    rows: list[tuple[str, ...]] = []
    for name, pipeline in report.pipelines.items():
        used = pipeline.resources
        if not used.is_known:
            continue
        heap = (used.heap_used_bytes_min, used.heap_used_bytes_mean, used.heap_used_bytes_max)
        received, sent = used.received_bytes_by_process or {}, used.sent_bytes_by_process or {}
        sums = (_traffic(sum(each.values()) if each else None) for each in (received, sent))
        rows.append((name, "all", f"{used.cpu_cores:.2f}", *map(_megabytes, heap), *sums))
        for process, cores in (used.cpu_cores_by_process or {}).items():
            traffic = (_traffic(received.get(process)), _traffic(sent.get(process)))
            rows.append((name, process, f"{cores:.2f}", "", "", "", *traffic))
    return rows


def _stolen_cores(report: Report) -> float:
    """Mean number of cores that a hypervisor gave to others; 0 if not known."""
    share = report.room.get(MACHINE, Room()).steal_share or 0
    return float((report.environment.get("cores") or 0) * share)


def _traffic(bytes_per_second: Number | None) -> str:
    """Megabytes per second, empty if not known."""
    return "" if bytes_per_second is None else f"{bytes_per_second / 1e6:.2f}"


def _megabytes(value: Number | None) -> str:
    """Empty if not known: a process that is no JVM has no heap."""
    return "" if value is None else f"{value / 1e6:.0f}"


def scaling_header(series: Scalability) -> tuple[str, ...]:
    """The column titles of a series with increasing numbers of workers."""
    latencies = (f"{stage} {figure}, ms" for stage in _stages(series) for figure in FIGURES)
    return ("workers", "partitions", "records/s", *latencies, "core-s per million", "free cores")


def scaling_rows(series: Scalability) -> list[tuple[str, ...]]:
    """A row for each number of workers, with figures and their intervals."""
    rows = []
    for point in series.points:
        latencies = [
            _bounded(point.stages.get(stage, {}).get(figure))
            for stage in _stages(series)
            for figure in FIGURES
        ]
        invalid = sum(not run.valid for run in point.runs)
        rate = _bounded(point.rate_per_second) + (f" {invalid} INVALID" if invalid else "")
        free = "–" if point.free_cores is None else f"{point.free_cores:.1f}"
        cost = _bounded(point.core_seconds_per_million_records)
        rows.append((str(point.workers), str(point.partitions), rate, *latencies, cost, free))
    return rows


def _stages(series: Scalability) -> list[str]:
    return list(dict.fromkeys(stage for point in series.points for stage in point.stages))


def sweep_tables(points: Sequence[SweepPoint]) -> list[tuple[str, Cells, list[Cells]]]:
    """Title, header and rows of the tables about several choices of settings: latencies by stage,
    and what the pipelines used. They have the settings that differ."""
    first = points[0].values if points else {}
    names = tuple(
        name for name in first if any(each.values[name] != first[name] for each in points)
    )
    runs = [
        (tuple(_setting(point.values[name]) for name in names), point, pipeline_name, pipeline)
        for point in points
        for pipeline_name, pipeline in point.pipelines.items()
    ]
    has_visible = any(
        "visible" in cell.latency_ms for *_, pipeline in runs for cell in pipeline.stages.values()
    )
    visible = ("visible p50", "visible p99") if has_visible else ()
    latencies = [
        (*values, name, stage, *_swept_cells(cell, has_visible=has_visible))
        for values, _, name, pipeline in runs
        for stage, cell in pipeline.stages.items()
    ]
    used = [
        (
            *values,
            name,
            *_used_cells(pipeline.resources),
            point.run_id,
            f"{point.valid} of {point.runs}",
        )
        for values, point, name, pipeline in runs
    ]
    figures = ("p50", "p99", "max", *visible, "per s", "ledger")
    uses = ("CPU cores", "memory MB", "heap MB", "run", "valid")
    return [
        ("latency by settings", (*names, "pipeline", "stage", *figures), latencies),
        ("use by settings", (*names, "pipeline", *uses), used),
    ]


def _swept_cells(cell: StageReport, *, has_visible: bool) -> Cells:
    visible = cell.latency_ms.get("visible", Latency())
    return (
        *latency_cells(cell.latest, ("p50", "p99", "max")),
        *((ms(visible.p50), ms(visible.p99)) if has_visible else ()),
        f"{cell.records_per_second or 0:.0f}",
        clean_cell(cell),
    )


def _used_cells(used: Resources) -> Cells:
    cores = "–" if used.cpu_cores is None else f"{used.cpu_cores:.2f}"
    return (cores, _megabytes(used.memory_bytes_max), _megabytes(used.heap_used_bytes_max))


def _setting(value: Any) -> str:
    """A value of a setting as --set has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _bounded(figure: Bounded | None) -> str:
    """`9 (8–10)`; an open interval if there is no upper bound."""
    if figure is None:
        return "–"
    value, low, high = map(_number, (figure.value, figure.low, figure.high))
    return value if figure.low is None else f"{value} ({low}–{high})"


def _number(value: Number | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
