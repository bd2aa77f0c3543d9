"""History of every figure, from ClickHouse: one series per workload, pipeline, stage, metric.

Runs belong to one series if they had the same domain, load, transport, content, faults, windows,
kills, stages, concurrent pipelines, turns and search parameters; settings, versions and machines
may differ, because changes of these are to be detected. Only valid runs that were not search steps
count, and only steady ones, unless most of a series were not steady. A search has no rate of its
own: its initial rate does not distinguish series.
"""

import json
from dataclasses import dataclass
from typing import Any

from analysis.comparability import LOAD, domain_of
from schemas.threshold import SUSTAINABLE_RATE
from schemas.workload import DEFAULT_DOMAIN
from services.runtime.clickhouse import query

TYPICAL = "middle_ms"  # mean of the middle half: resolves less than a millisecond, ignores stalls
LATENCIES = (TYPICAL, "p99_ms")
METRICS = (*LATENCIES, SUSTAINABLE_RATE)
HIGHER_IS_BETTER = (SUSTAINABLE_RATE,)
USED = ("others_cores", "generator_us")
# The newest runs of each load and its pipelines, so that none displaces the others, such as hourly
# runs of watches; and of all together.
MOST_OF_EACH, MOST_RUNS = 1_000, 4_000

NEWEST = (
    "(SELECT r.run_id FROM tidegauge.runs AS r WHERE r.concluded AND r.valid AND r.step_of = ''"
    " ORDER BY r.requested_at DESC"
    " LIMIT {each:UInt32} BY r.load_name, r.pipelines LIMIT {most:UInt32})"
)
RUNS = (
    "SELECT l.run_id AS run_id, min(l.time) AS at, toUnixTimestamp64Milli(at) AS at_ms,"
    " anyIf(l.detail, l.event IN ('run_requested', 'watch_begun')) AS request,"
    " any(s.steady) AS steady"
    " FROM tidegauge.results_lifecycle AS l LEFT JOIN (SELECT run_id,"
    " argMax(JSONExtract(detail, 'warm_up', 'steady', 'Nullable(Bool)'), (k.time, k._offset))"
    " AS steady"
    " FROM tidegauge.results_conclusions AS k WHERE kind = 'run' GROUP BY run_id) AS s"
    f" ON s.run_id = l.run_id WHERE l.run_id IN {NEWEST}"
    " GROUP BY l.run_id HAVING request != '' ORDER BY at, run_id"
)
FIGURES = (
    f"SELECT run_id, pipeline, stage, {', '.join(LATENCIES)} FROM tidegauge.latency_summary"
    f" WHERE phase = 'measure' AND definition = 'latest' AND run_id IN {NEWEST}"
)
RATES = (
    "SELECT run_id, pipeline, arrayStringConcat(stages, ', ') AS stage,"
    f" rate_per_second AS {SUSTAINABLE_RATE} FROM tidegauge.sustainable_rates"
    f" WHERE valid AND rate_per_second IS NOT NULL AND run_id IN {NEWEST}"
)
VERSIONS = (
    "SELECT run_id, pipeline, any(arrayFirst(x -> endsWith(x.1, 'version'),"
    " JSONExtractKeysAndValues(detail, 'String')).2) AS version FROM tidegauge.results_lifecycle"
    f" WHERE event = 'ready' AND pipeline != '' AND run_id IN {NEWEST} GROUP BY run_id, pipeline"
)
USAGE = (
    "SELECT u.run_id AS run_id, sumIf(u.mean_cpu_cores, service = 'machine')"
    " - sumIf(u.mean_cpu_cores, service != 'machine') AS others_cores,"
    " 1e6 * nullIf(sumIf(u.cpu_seconds, service = 'generator'), 0) / any(g.records)"
    " AS generator_us FROM tidegauge.resources_summary AS u LEFT JOIN"
    " (SELECT run_id, toNullable(nullIf(sum(s.acknowledged), 0)) AS records"
    f" FROM tidegauge.generator_summary AS s WHERE run_id IN {NEWEST} GROUP BY run_id) AS g"
    f" ON g.run_id = u.run_id WHERE u.run_id IN {NEWEST} GROUP BY u.run_id"
)


@dataclass(frozen=True)
class Point:
    """One run in a series. request: its whole request as JSON. at_ms: time of the request.
    others_cores: mean cores used by other processes meanwhile; generator_us: CPU time of the
    generator per record, microseconds. These and is_steady are None if unknown. engine_version: as
    the engine reported it, or empty."""

    run_id: str
    value: float
    request: dict[str, Any]
    others_cores: float | None = None
    at_ms: int = 0
    is_steady: bool | None = None
    generator_us: float | None = None
    engine_version: str = ""


@dataclass(frozen=True)
class Series:
    """The history of one figure, oldest run first. workload: name, with its rate if constant;
    metric: `middle_ms` or `p99_ms` of `latest`, or for a search `sustainable_rate_per_second`,
    whose stage is all the stages that ran."""

    workload: str
    pipeline: str
    stage: str
    metric: str
    points: tuple[Point, ...]

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Display key of a series; loads may still differ in details."""
        return (self.workload, self.pipeline, self.stage, self.metric)


def read_series(url: str) -> list[Series]:
    """Every series of the store, in the order of their first runs. Raises QueryError."""
    limits = {"each": str(MOST_OF_EACH), "most": str(MOST_RUNS)}
    runs, figures, rates, usage, ready = (
        query(url, sql, **limits) for sql in (RUNS, FIGURES, RATES, USAGE, VERSIONS)
    )
    requests = {row["run_id"]: json.loads(row["request"]) for row in runs}
    used = {row["run_id"]: row for row in usage}
    when = {row["run_id"]: (row["at_ms"], row["steady"]) for row in runs}
    versions = {(row["run_id"], row["pipeline"]): row["version"] for row in ready}
    return assemble(requests, [*figures, *rates], used, when, versions)


def assemble(
    requests: dict[str, dict[str, Any]],
    figures: list[dict[str, Any]],
    usage: dict[str, dict[str, Any]],
    when: dict[str, tuple[int, bool | None]] | None = None,
    versions: dict[tuple[str, str], str] | None = None,
) -> list[Series]:
    """Series from runs (by run id, oldest first), their figures (rows with a column for each
    metric), their use (`others_cores` and `generator_us`), times and steadiness, and the versions
    of their engines by run and pipeline. Pure."""
    by_run: dict[str, list[dict[str, Any]]] = {}
    for row in figures:
        by_run.setdefault(row["run_id"], []).append(row)
    found: dict[tuple[str, str, str, str, str], list[Point]] = {}
    for run_id, request in requests.items():
        used = usage.get(run_id, {})
        for row in by_run.get(run_id, ()):
            is_search = bool(request["workload"].get("search"))
            for metric in (name for name in METRICS if name in row):
                if is_search and metric != SUSTAINABLE_RATE:
                    continue  # its run has the rate found, which differs
                key = (alike(request), label(request), row["pipeline"], row["stage"], metric)
                at_ms, is_steady = (when or {}).get(run_id, (0, None))
                value = float(row[metric])
                others_cores, generator_us = (used.get(key) for key in USED)
                version = (versions or {}).get((run_id, row["pipeline"]), "")
                point = Point(
                    run_id,
                    value,
                    request,
                    others_cores,
                    at_ms,
                    is_steady,
                    generator_us,
                    version,
                )
                found.setdefault(key, []).append(point)
    return [
        Series(workload, pipeline, stage, metric, steady_ones(points))
        for (_alike, workload, pipeline, stage, metric), points in found.items()
    ]


def steady_ones(points: list[Point]) -> tuple[Point, ...]:
    """The runs not found unsteady, if these are the majority; else all."""
    found = tuple(point for point in points if point.is_steady is not False)
    return found if 2 * len(found) > len(points) else tuple(points)


def alike(request: dict[str, Any]) -> str:
    """Equal for comparable runs."""
    workload = request["workload"]
    load = dict(workload.get("load", {}))  # a watch has no load
    if _finds_rate(workload):
        load.pop("rate_per_second", None)  # the initial rate, not what is measured
    told = [workload["name"], load, windows_of(request), *(workload.get(name) for name in LOAD)]
    told += [workload.get("transport", "kafka"), (request.get("interleaved") or {}).get("block_s")]
    pipelines = sorted(pipeline["name"] for pipeline in request["pipelines"])
    return json.dumps([told, domain_of(request), pipelines, request["stages"]], sort_keys=True)


def _finds_rate(workload: dict[str, Any]) -> bool:
    """Whether its rate is a result of a search."""
    return bool(workload.get("search") or workload.get("sustainable_share"))


def windows_of(request: dict[str, Any]) -> dict[str, int]:
    """Window sizes of all stages in seconds, by `<stage>_s`: of the domain; a watch has
    none."""
    stages = request["domain"]["stages"] if "domain" in request else ()
    windowed = (stage for stage in stages if stage.get("window"))
    return {f"{stage['name']}_s": stage["window"]["size_s"] for stage in windowed}


def label(request: dict[str, Any]) -> str:
    """Display name of the workload: its name, its rate if it has one, and its domain if that is not
    the default."""
    workload = request["workload"]
    rate = None if _finds_rate(workload) else workload.get("load", {}).get("rate_per_second")
    domain = domain_of(request)
    return "".join(
        (
            str(workload["name"]),
            f" at {rate:g}/s" if rate else "",
            f" of {domain}" if domain not in ("", DEFAULT_DOMAIN) else "",
        )
    )
