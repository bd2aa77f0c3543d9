"""The result of a series of runs with increasing numbers of workers: `scalability` in each report.

All of it is read from the runs of the series, so it is available for each of them at any time.
"""

import json
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from rich.table import Table

from analysis.costs import used_by_others
from analysis.thresholds import outcome
from schemas.protocol import MACHINE
from services.console.terminal import titled_table
from services.runtime.clickhouse import query

Report = dict[str, Any]
FIGURES = ("p50", "p99")
OTHERS = "other processes"
RUNS = (
    "SELECT run_id, detail FROM tidegauge.results_lifecycle AS e WHERE event = 'run_requested'"
    " AND JSONExtractString(detail, 'scaled', 'series') = {series:String} ORDER BY e.time, run_id"
)


def scalability_of(
    url: str, request: dict[str, Any], report_of: Callable[[str, str], Report]
) -> Report | None:
    """The key `scalability` of a run's report, given its request as JSON; None for a run outside a
    series. Raises QueryError."""
    scaled = request.get("scaled")
    if scaled is None:
        return None
    series = scaled["series"]
    runs: dict[int, list[Report]] = {}
    for row in query(url, RUNS, series=series):
        of_run = json.loads(row["detail"])["scaled"]
        told = of_run | {"report": report_of(url, row["run_id"])}
        runs.setdefault(of_run["workers"], []).append(told)
    return judged(series, scaled["pipeline"], [runs[workers] for workers in sorted(runs)])


def judged(series: str, pipeline: str, by_workers: Sequence[Sequence[Report]]) -> Report:
    """The result of a series, given its runs by number of workers: each with its `Scaled` and
    `report`."""
    from analysis import scalability  # slow: imports numpy

    points = [_point(runs) for runs in by_workers]
    found = scalability.scalability([scalability.Point(**one.pop("point")) for one in points])
    objections = found.pop("objections")
    for one in points:
        one["objection"] = objections.get(str(one["workers"]), "")
    return {"series": series, "pipeline": pipeline, "points": points} | found


def _point(runs: Sequence[Report]) -> Report:
    """The results for a number of workers as a report contains them; `point`: the same as input of
    the law. An invalid run is named and not counted."""
    reports = [one["report"] for one in runs]
    valid = [one for one in reports if one["valid"]]
    searches = [one["conclusion"].get("search") or {} for one in valid]
    rates = [tuple(one["interval_per_second"]) for one in searches if one.get("rate_per_second")]
    told = searches or [one["conclusion"].get("search") or {} for one in reports]
    limits = dict.fromkeys(one["limited_by"] for one in told if one.get("limited_by"))
    free = [room for one in valid if (room := _room(one)) is not None]
    free_cores, taken = min(free, key=lambda one: one[0]) if free else (None, {})
    cores = next((one["environment"].get("cores") for one in reports), None)
    workers = runs[0]["workers"]
    return {
        "workers": workers,
        "partitions": runs[0]["partitions"],
        "runs": [_run(one) for one in reports],
        "rate_per_second": _rate(rates),
        "limited_by": list(limits),
        "free_cores": free_cores,
        "stages": _stages(valid),
        "core_seconds_per_million_records": _over_runs([_cost(one) for one in valid]),
        "point": {
            "workers": workers,
            "bounds": tuple(rates),
            "limited_by": tuple(limits),
            "cores": cores,
            "free_cores": free_cores,
            "taken": taken,
        },
    }


def _run(report: Report) -> Report:
    search = report["conclusion"].get("search") or {}
    return outcome(report) | {
        "rate_per_second": search.get("rate_per_second"),
        "interval_per_second": search.get("interval_per_second"),
    }


def _room(report: Report) -> tuple[float, dict[str, float]] | None:
    """Cores that everything else left to the pipeline, and what that used; None if not known."""
    (pipeline,) = report["pipelines"].values()
    services, cores = report["services"], report["environment"].get("cores")
    rows = services | {"the pipeline": pipeline["resources"]}
    others = used_by_others(rows)
    if not cores or not pipeline["resources"] or others is None:
        return None
    taken = {name: one["cpu_cores"] for name, one in services.items() if name != MACHINE}
    return cores - sum(taken.values()) - others, taken | {OTHERS: others}


def _rate(bounds: Sequence[tuple[float, float | None]]) -> Report | None:
    """The median rate and the bounds that all searches imply."""
    if not bounds:
        return None
    lows = [low for low, _high in bounds]
    highs = [high for _low, high in bounds if high is not None]
    high = max(highs) if len(highs) == len(bounds) else None
    return {"value": median(lows), "low": min(lows), "high": high}


def _stages(reports: Sequence[Report]) -> Report:
    """p50 and p99 of each stage, in milliseconds, at the share of the sustainable rate that was
    run."""
    found: dict[str, dict[str, list[Report]]] = {}
    for report in reports:
        (pipeline,) = report["pipelines"].values()
        for stage, cell in pipeline["stages"].items():
            latest = cell["latency_ms"].get("latest")
            for figure in FIGURES if latest else ():
                bounds = (latest["intervals"] or {}).get(figure) or (None, None)
                told = {"value": latest[figure], "low": bounds[0], "high": bounds[1]}
                found.setdefault(stage, {}).setdefault(figure, []).append(told)
    return {
        stage: {figure: _over_runs(values) for figure, values in figures.items()}
        for stage, figures in found.items()
    }


def _cost(report: Report) -> Report | None:
    (pipeline,) = report["pipelines"].values()
    used = pipeline["resources"]
    if used.get("core_seconds_per_million_records") is None:
        return None
    low, high = used["core_seconds_interval"] or (None, None)
    return {"value": used["core_seconds_per_million_records"], "low": low, "high": high}


def _over_runs(figures: Sequence[Report | None]) -> Report | None:
    """A figure with the interval of its run; for several runs the median, with an interval from
    their variation and its confidence."""
    known = [one for one in figures if one is not None]
    if len(known) < 2:
        return known[0] if known else None
    from analysis.bootstrap import median_confidence, median_interval

    found = median_interval([one["value"] for one in known])
    confidence = median_confidence(len(known))
    return {"value": found.value, "low": found.low, "high": found.high, "confidence": confidence}


def scaling_header(found: Report) -> tuple[str, ...]:
    """The column titles of a series' table."""
    stages = dict.fromkeys(stage for one in found["points"] for stage in one["stages"])
    latencies = tuple(f"{stage} {figure}, ms" for stage in stages for figure in FIGURES)
    return ("workers", "partitions", "records/s", *latencies, "core-s per million", "free cores")


def scaling_rows(found: Report) -> list[tuple[str, ...]]:
    """A row for each number of workers, with figures and their intervals."""
    stages = dict.fromkeys(stage for one in found["points"] for stage in one["stages"])
    rows = []
    for one in found["points"]:
        latencies = tuple(
            _shown(one["stages"].get(stage, {}).get(figure))
            for stage in stages
            for figure in FIGURES
        )
        invalid = sum(not run["valid"] for run in one["runs"])
        rate = _shown(one["rate_per_second"]) + (f" {invalid} INVALID" if invalid else "")
        free = "–" if one["free_cores"] is None else f"{one['free_cores']:.1f}"
        head = (str(one["workers"]), str(one["partitions"]), rate.strip())
        rows.append((*head, *latencies, _shown(one["core_seconds_per_million_records"]), free))
    return rows


def _shown(figure: Report | None) -> str:
    """`9 (8–10)`; an open interval if there is no upper bound."""
    if figure is None:
        return "–"
    value, low, high = (_number(figure[name]) for name in ("value", "low", "high"))
    if figure["low"] is None:
        return value
    return f"{value} ({low}–{high})"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def scaling_table(found: Report) -> Table:
    """The series as a terminal table."""
    table = titled_table(f"{found['pipeline']} by workers")
    for column in scaling_header(found):
        table.add_column(column, justify="right")
    for row in scaling_rows(found):
        table.add_row(*row)
    table.caption = "latency and core-seconds at the rate of the run; –: not measured or not valid"
    table.caption_justify = "left"
    return table
