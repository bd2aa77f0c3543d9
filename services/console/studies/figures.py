"""Figures of a study's tables, from the report of a run. Pure."""

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from schemas.study import FigureName

Report = dict[str, Any]
Figure = Callable[[Report, dict[str, Any], dict[str, Any]], float | None]


def figure_of(report: Report, pipeline: str, stage: str, name: FigureName) -> float | None:
    """The figure of a stage; None if the run does not have it."""
    found = report["pipelines"].get(pipeline, {})
    cell = found.get("stages", {}).get(stage)
    if cell is None:
        return None
    return FIGURES[name](report, found, cell)


def title_of(name: FigureName) -> str:
    """The column title of a figure, with its unit."""
    return TITLES.get(name) or f"{name.removesuffix('_ms')}, ms"


def _latency(definition: str, percentile: str) -> Figure:
    def find(_report: Report, _pipeline: dict[str, Any], cell: dict[str, Any]) -> float | None:
        value = cell["latency_ms"].get(definition, {}).get(percentile)
        return None if value is None else float(value)

    return find


def _recovery(kind: str, combine: Callable[[Iterable[float]], float]) -> Figure:
    """A recovery figure; the values of several bursts are combined."""

    def find(_report: Report, _pipeline: dict[str, Any], cell: dict[str, Any]) -> float | None:
        each = [one.get(kind) for one in cell.get("recovery", ())]
        known = [float(value) for value in each if value is not None]
        return combine(known) if known and len(known) == len(each) else None

    return find


def _sustainable(report: Report, _pipeline: Any, _cell: Any) -> float | None:
    rate = report["conclusion"].get("search", {}).get("rate_per_second")
    return None if rate is None else float(rate)


def _memory_mb(_report: Report, pipeline: dict[str, Any], _cell: Any) -> float | None:
    most = pipeline.get("resources", {}).get("memory_bytes_max")
    return None if most is None else float(most) / 1e6


def _core_s(_report: Report, pipeline: dict[str, Any], _cell: Any) -> float | None:
    cost = pipeline.get("resources", {}).get("core_seconds_per_million_records")
    return None if cost is None else float(cost)


def _input_per_second(report: Report, _pipeline: Any, _cell: Any) -> float | None:
    return float(report["input"]["records_per_second"])


def _way_in(*path: str) -> Figure:
    """A figure of the transport through the gateway; None if records were sent directly to
    Kafka."""

    def find(report: Report, _pipeline: Any, _cell: Any) -> float | None:
        value = report.get("way_in")
        for name in path:
            value = None if value is None else value[name]
        return None if value is None else float(value)

    return find


_PERCENTILES = ("min", "mean", "p50", "p90", "p95", "p99", "max")
FIGURES: dict[str, Figure] = {
    **{f"{one}_ms": _latency("latest", one) for one in _PERCENTILES},
    **{f"event_time_{one}_ms": _latency("event_time", one) for one in _PERCENTILES},
    "sustainable_per_second": _sustainable,
    "first_output_s": _recovery("first_output_s", max),
    "caught_up_s": _recovery("high_for_s", max),
    "peak_outputs_per_second": _recovery("peak_per_second", max),
    "normal_median_ms": _recovery("normal_ms", median),
    "highest_median_ms": _recovery("highest_median_ms", median),
    "high_for_s": _recovery("high_for_s", median),
    "memory_mb": _memory_mb,
    "core_s_per_million": _core_s,
    "input_per_second": _input_per_second,
    "way_in_lost": _way_in("lost"),
    "way_in_p50_us": _way_in("transit_us", "p50"),
    "way_in_p99_us": _way_in("transit_us", "p99"),
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
