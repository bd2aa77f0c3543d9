"""The figures of a study: how each is read from the report of a run, and its title. Pure."""

from collections.abc import Callable, Iterable
from math import inf
from statistics import median

from analysis.intervals import is_supported
from schemas.percentiles import LEVELS
from schemas.percentiles import shown as shown_name
from schemas.report import Number, PipelineReport, Recovery, Report, ReportPart, StageReport
from schemas.study import LATENCIES, PREFIXES, FigureName

Figure = Callable[[Report, PipelineReport, StageReport], Number | None]
# Attributes of the recovery from each fault, by the figure.
OF_FAULTS = {
    "outage_s": "outage_s",
    "normal_again_s": "high_for_s",
    "extra_core_s": "extra_core_s",
    "before_p99_ms": "before_p99_ms",
}
BITS, GIGA = 8, 1e9
COMMON = 0.99  # of higher percentiles, those of too few outputs are left empty
TITLES: dict[str, str] = {
    **{
        f"{prefix}{each}_ms": f"{shown_name(each)}, {of}, ms"
        for prefix, of in (
            ("event_time_", "event time"),
            ("mean_of_inputs_", "of inputs"),
            ("window_time_", "of windows"),
            ("visible_", "committed"),
            ("processing_time_", "from the hand-over"),
        )
        for each in LATENCIES
    },
    "sustainable_per_second": "sustainable, records/s",
    "sustainable_gbit_per_second": "sustainable, Gbit/s of values",
    "first_output_s": "first output, s",
    "caught_up_s": "caught up, s",
    "peak_outputs_per_second": "peak, outputs/s",
    "normal_median_ms": "median between bursts, ms",
    "highest_median_ms": "highest median after a burst, ms",
    "high_for_s": "high for, s",
    "burst_p99_ms": "p99 after a burst, ms",
    "outage_s": "outage, s",
    "normal_again_s": "latency normal after, s",
    "extra_core_s": "extra core-seconds",
    "before_p99_ms": "p99 before the first fault, ms",
    "missing": "lost",
    "late": "late",
    "duplicates": "repeated",
    "wrong": "wrong",
    "aborted": "aborted",
    "memory_mb": "peak memory, MB",
    "heap_min_mb": "used heap min, MB",
    "heap_mean_mb": "used heap mean, MB",
    "heap_max_mb": "used heap max, MB",
    "cpu_cores": "cores",
    "core_s_per_million": "core-seconds per million records",
    **{
        f"scheduler_delay_{name}_ms": f"scheduler delay {name}, ms"
        for name in ("p50", "p99", "max", "mean")
    },
    "input_per_second": "records/s appended",
    "lag_max_records": "most unread records",
    "way_in_lost": "frames lost",
    "way_in_p50_us": "p50 to the gateway, µs",
    "way_in_p99_us": "p99 to the gateway, µs",
    "lost": "lost on the whole way",
    "socket_p50_ns": "p50 between sending and receiving, ns",
    "socket_p99_ns": "p99 between sending and receiving, ns",
}


def figure_of(report: Report, pipeline: str, stage: str, name: FigureName) -> float | None:
    """The figure of a stage; None if the run does not have it."""
    of_pipeline = report.pipelines.get(pipeline, PipelineReport())
    cell = of_pipeline.stages.get(stage)
    if cell is None:
        return None
    value = FIGURES[name](report, of_pipeline, cell)
    return None if value is None else float(value)


def title_of(name: FigureName) -> str:
    """The column title of a figure, with its unit."""
    return TITLES.get(name) or f"{shown_name(name.removesuffix('_ms'))}, ms"


def _latency(definition: str, percentile: str) -> Figure:
    def find(_report: Report, _pipeline: PipelineReport, cell: StageReport) -> Number | None:
        latency, level = cell.latency_ms.get(definition), LEVELS.get(percentile, 0.0)
        if latency is None or (level > COMMON and not is_supported(latency.count, level)):
            return None
        return latency.of(percentile)

    return find


def _recovery(kind: str, combine: Callable[[Iterable[float]], float]) -> Figure:
    """A recovery figure; the values of several bursts are combined."""

    def find(_report: Report, _pipeline: PipelineReport, cell: StageReport) -> Number | None:
        values = [getattr(recovered, kind) for recovered in cell.recovery]
        known = [float(value) for value in values if value is not None]
        return combine(known) if known and len(known) == len(values) else None

    return find


def values_of_faults(cell: StageReport, name: FigureName) -> list[float]:
    """A figure of each fault of a run, infinite for what did not end; none if it is no such figure,
    or unknown of a fault."""
    values: list[float] = []
    for each in cell.recovery if name in OF_FAULTS else ():
        if each.silent_s is None:
            continue  # no kill
        value = getattr(each, OF_FAULTS[name])
        if value is None and not _is_endless(each, name):
            return []
        values.append(inf if value is None else float(value))
    return values


def _is_endless(each: Recovery, name: FigureName) -> bool:
    """Whether what a missing figure measures did not end; otherwise it is unknown."""
    if name == "outage_s":
        return "outage_s" in each.model_fields_set
    return name == "normal_again_s" and each.normal_ms is not None


def _of_faults(name: FigureName) -> Figure:
    def find(_report: Report, _pipeline: PipelineReport, cell: StageReport) -> Number | None:
        values = values_of_faults(cell, name)
        return median(values) if values else None

    return find


def _verdicts(*names: str) -> Figure:
    def find(_report: Report, _pipeline: PipelineReport, cell: StageReport) -> Number | None:
        return sum(cell.verdicts[name] for name in names) if cell.verdicts else None

    return find


def _of(part: ReportPart | None, name: str) -> Number | None:
    """A figure by its name; None without the part."""
    value: Number | None = None if part is None else getattr(part, name)
    return value


def _megabytes(name: str) -> Figure:
    def find(_report: Report, pipeline: PipelineReport, _cell: StageReport) -> Number | None:
        size = _of(pipeline.resources, name)
        return None if size is None else float(size) / 1e6

    return find


def _scheduler_delay(name: str) -> Figure:
    return lambda _report, pipeline, _cell: _of(pipeline.scheduler_delay_ms, name)


def _sustainable_gbit(
    report: Report, _pipeline: PipelineReport, _cell: StageReport
) -> Number | None:
    rate, size = report.search.rate_per_second, report.mean_bytes.get("input")
    return None if rate is None or size is None else rate * size * BITS / GIGA


FIGURES: dict[str, Figure] = {
    **{
        f"{prefix}{each}_ms": _latency(definition, each)
        for prefix, definition in PREFIXES.items()
        for each in LATENCIES
    },
    "sustainable_per_second": lambda report, _pipeline, _cell: report.search.rate_per_second,
    "sustainable_gbit_per_second": _sustainable_gbit,
    "first_output_s": _recovery("first_output_s", max),
    "caught_up_s": _recovery("high_for_s", max),
    "peak_outputs_per_second": _recovery("peak_per_second", max),
    "normal_median_ms": _recovery("normal_ms", median),
    "highest_median_ms": _recovery("highest_median_ms", median),
    "high_for_s": _recovery("high_for_s", median),
    "burst_p99_ms": _recovery("p99_ms", median),
    **{name: _of_faults(name) for name in OF_FAULTS},
    "missing": _verdicts("missing"),
    "late": _verdicts("late"),
    "duplicates": _verdicts("duplicate"),
    "wrong": _verdicts("wrong", "unexpected"),
    "aborted": lambda _report, _pipeline, cell: cell.aborted,
    "memory_mb": _megabytes("memory_bytes_max"),
    **{f"heap_{each}_mb": _megabytes(f"heap_used_bytes_{each}") for each in ("min", "mean", "max")},
    "cpu_cores": lambda _report, pipeline, _cell: pipeline.resources.cpu_cores,
    **{
        f"scheduler_delay_{each}_ms": _scheduler_delay(each)
        for each in ("p50", "p99", "max", "mean")
    },
    "core_s_per_million": lambda _report, pipeline, _cell: (
        pipeline.resources.core_seconds_per_million_records
    ),
    "input_per_second": lambda report, _pipeline, _cell: report.input.records_per_second,
    "lag_max_records": lambda _report, pipeline, _cell: _of(pipeline.lag_records, "max"),
    "way_in_lost": lambda report, _pipeline, _cell: _of(report.way_in, "lost"),
    "way_in_p50_us": lambda report, _pipeline, _cell: _of(
        report.way_in and report.way_in.transit_us, "p50"
    ),
    "way_in_p99_us": lambda report, _pipeline, _cell: _of(
        report.way_in and report.way_in.transit_us, "p99"
    ),
    "lost": lambda _report, _pipeline, cell: cell.lost,
    "socket_p50_ns": lambda _report, _pipeline, cell: _of(cell.socket_ns, "p50"),
    "socket_p99_ns": lambda _report, _pipeline, cell: _of(cell.socket_ns, "p99"),
}
