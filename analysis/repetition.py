"""Summary of repeated runs: the median run, and the uncertainty of its figures. Pure.

Invalid runs are listed but not counted.
"""

from statistics import median
from typing import Any

from analysis.bootstrap import median_confidence, median_interval
from analysis.comparability import doubts_of
from analysis.costs import COST
from analysis.interleaving import pooled
from analysis.thresholds import outcome
from schemas.protocol import DEFINITIONS

Report = dict[str, Any]
FIGURES = ("p50", "p90", "p95", "p99", "p999", "mean")


def summarise(reports: list[Report]) -> Report:
    """The report of the median run with `repetition`: the runs, and for each figure of each stage
    and the cost of each pipeline its median over the valid runs with a bootstrap interval and its
    confidence, which is low for few runs. `interleaved` is the decision from the blocks of the
    valid runs (`interleaving.pooled`). Without a valid run: the last report.
    """
    valid = [report for report in reports if report["valid"]]
    chosen = median_run(valid) if valid else reports[-1]
    return chosen | {
        "interleaved": pooled(valid) or chosen.get("interleaved"),
        "repetition": {
            "runs": [outcome(report) | {"doubts": doubts_of(report)} for report in reports],
            "median_run": chosen["run_id"] if valid else None,
            "confidence": median_confidence(len(valid)),
            "intervals_by": "how runs vary",
            "pipelines": _intervals(valid),
            "search": _searched(valid),
        },
    }


def _searched(reports: list[Report]) -> dict[str, Any] | None:
    """Results of several searches: each rate, their spread as a share of the median, and their
    common bounds. None without a rate."""
    results = [report["conclusion"].get("search") or {} for report in reports]
    found = [one for one in results if one.get("rate_per_second") is not None]
    if not found:
        return None
    rates = [one["rate_per_second"] for one in found]
    lows, highs = zip(*(one["interval_per_second"] for one in found), strict=True)
    return {
        "rates_per_second": rates,
        "median_per_second": median(rates),
        "differ_by": (max(rates) - min(rates)) / median(rates),
        "interval_per_second": [min(lows), None if None in highs else max(highs)],
        "limited_by": [one.get("limited_by", "") for one in found],
    }


def median_run(reports: list[Report]) -> Report:
    """The run nearest to the medians of all runs: with the least sum over all stages of the
    relative distance of its median latency; the earliest of equals."""
    medians = {
        cell: median_interval([_figure(report, *cell, "p50") for report in having]).value
        for cell, having in _cells(reports).items()
    }

    def distance(report: Report) -> float:
        return sum(
            abs(_figure(report, *cell, "p50") - median) / max(1.0, abs(median))
            for cell, median in medians.items()
            if _has(report, *cell)
        )

    return min(reports, key=distance)


def _intervals(reports: list[Report]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (pipeline, stage, definition), having in _cells(reports).items():
        stages = found.setdefault(pipeline, {}).setdefault("stages", {})
        figures = stages.setdefault(stage, {}).setdefault("latency_ms", {})
        figures[definition] = {
            figure: _interval([_figure(r, pipeline, stage, definition, figure) for r in having])
            for figure in FIGURES
        }
    for pipeline, one in found.items():
        costs = [r["pipelines"].get(pipeline, {}).get("resources", {}).get(COST) for r in reports]
        known = [cost for cost in costs if cost is not None]
        one["resources"] = {COST: _interval(known)} if known else {}
    return found


def _interval(values: list[float]) -> dict[str, Any]:
    found = median_interval(values)
    return {
        "median": found.value,
        "low": found.low,
        "high": found.high,
        "confidence": median_confidence(len(values)),
        "values": values,
    }


def _cells(reports: list[Report]) -> dict[tuple[str, str, str], list[Report]]:
    """The runs with a latency, by pipeline, stage and definition."""
    found: dict[tuple[str, str, str], list[Report]] = {}
    for report in reports:
        for pipeline, one in report["pipelines"].items():
            for stage in one["stages"]:
                for definition in DEFINITIONS:
                    if _has(report, pipeline, stage, definition):
                        found.setdefault((pipeline, stage, definition), []).append(report)
    return found


def _has(report: Report, pipeline: str, stage: str, definition: str) -> bool:
    stages = report["pipelines"].get(pipeline, {}).get("stages", {})
    return definition in stages.get(stage, {}).get("latency_ms", {})


def _figure(report: Report, pipeline: str, stage: str, definition: str, figure: str) -> float:
    value: float = report["pipelines"][pipeline]["stages"][stage]["latency_ms"][definition][figure]
    return value
