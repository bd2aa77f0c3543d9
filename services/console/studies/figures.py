"""Figures of a study's tables, from the report of a run. Pure."""

from collections.abc import Callable, Iterable
from statistics import median

from schemas.report import Number, Part, PipelineReport, Report, StageReport
from schemas.study import FigureName

Figure = Callable[[Report, PipelineReport, StageReport], Number | None]


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
    return TITLES.get(name) or f"{name.removesuffix('_ms')}, ms"


def _latency(definition: str, percentile: str) -> Figure:
    def find(_report: Report, _pipeline: PipelineReport, cell: StageReport) -> Number | None:
        latency = cell.latency_ms.get(definition)
        return latency.of(percentile) if latency else None

    return find


def _recovery(kind: str, combine: Callable[[Iterable[float]], float]) -> Figure:
    """A recovery figure; the values of several bursts are combined."""

    def find(_report: Report, _pipeline: PipelineReport, cell: StageReport) -> Number | None:
        values = [getattr(recovered, kind) for recovered in cell.recovery]
        known = [float(value) for value in values if value is not None]
        return combine(known) if known and len(known) == len(values) else None

    return find


def _of(part: Part | None, name: str) -> Number | None:
    """A figure by its name; None without the part."""
    value: Number | None = None if part is None else getattr(part, name)
    return value


def _memory_mb(_report: Report, pipeline: PipelineReport, _cell: StageReport) -> Number | None:
    most = pipeline.resources.memory_bytes_max
    return None if most is None else float(most) / 1e6


_PERCENTILES = ("min", "mean", "p50", "p90", "p95", "p99", "max")
FIGURES: dict[str, Figure] = {
    **{f"{one}_ms": _latency("latest", one) for one in _PERCENTILES},
    **{f"event_time_{one}_ms": _latency("event_time", one) for one in _PERCENTILES},
    "sustainable_per_second": lambda report, _pipeline, _cell: report.search.rate_per_second,
    "first_output_s": _recovery("first_output_s", max),
    "caught_up_s": _recovery("high_for_s", max),
    "peak_outputs_per_second": _recovery("peak_per_second", max),
    "normal_median_ms": _recovery("normal_ms", median),
    "highest_median_ms": _recovery("highest_median_ms", median),
    "high_for_s": _recovery("high_for_s", median),
    "memory_mb": _memory_mb,
    "core_s_per_million": lambda _report, pipeline, _cell: (
        pipeline.resources.core_seconds_per_million_records
    ),
    "input_per_second": lambda report, _pipeline, _cell: report.input.records_per_second,
    "way_in_lost": lambda report, _pipeline, _cell: _of(report.way_in, "lost"),
    "way_in_p50_us": lambda report, _pipeline, _cell: _of(
        report.way_in and report.way_in.transit_us, "p50"
    ),
    "way_in_p99_us": lambda report, _pipeline, _cell: _of(
        report.way_in and report.way_in.transit_us, "p99"
    ),
}
TITLES: dict[str, str] = {
    **{f"event_time_{one}_ms": f"{one}, event time, ms" for one in _PERCENTILES},
    "sustainable_per_second": "sustainable, records/s",
    "first_output_s": "first output, s",
    "caught_up_s": "caught up, s",
    "peak_outputs_per_second": "peak, outputs/s",
    "normal_median_ms": "median between bursts, ms",
    "highest_median_ms": "highest median after a burst, ms",
    "high_for_s": "high for, s",
    "memory_mb": "peak memory, MB",
    "core_s_per_million": "core-seconds per million records",
    "input_per_second": "records/s appended",
    "way_in_lost": "frames lost",
    "way_in_p50_us": "p50 to the gateway, µs",
    "way_in_p99_us": "p99 to the gateway, µs",
}
