"""The report of one run, from ClickHouse only, so that anyone can run the same queries.

All figures are of the measure phase. The latencies come from the view `latency_summary`, which
computes exact percentiles from raw counts.
"""

import json
from typing import Any

from analysis.comparability import Facts, domain_of
from analysis.costs import core_seconds_per_million_records, cost_of_observing, scaled_bounds
from analysis.expiry import seconds_expired
from schemas.protocol import VERDICTS
from services.console.attributed import floor_of, taken_from
from services.console.comparisons import add_comparisons
from services.console.disturbances import add_recoveries
from services.console.interleaved import add_interleaved
from services.console.intervals import read_intervals
from services.console.report_figures import (
    Cells,
    add_costs,
    add_lags,
    add_latencies,
    add_resources,
    add_throughput,
    add_verdicts,
    seconds_of,
)
from services.console.restarts import restarts_of
from services.console.scaling import scalability_of
from services.console.warmth import warm_up_of
from services.console.watched import (
    is_watched,
    watched_amounts,
    watched_bounds,
    watched_input,
    watched_until_ms,
    without_unmeasured,
)
from services.console.ways_in import way_in_of
from services.runtime.clickhouse import QueryError, query

Report = dict[str, Any]


class UnknownRunError(QueryError):
    """The store does not know a run."""


def build_report(url: str, run_id: str) -> Report:
    """The report as the contract's JSON. Raises QueryError, UnknownRunError.

    Parts that need the counts per second are omitted if these have expired.
    """
    request, conclusion = request_of(url, run_id), _conclusion(url, run_id)
    watched = is_watched(request)
    bounds = watched_bounds(conclusion["detail"]) or _measure_bounds(url, run_id, watched)
    pipelines = _empty_pipelines(request)
    cells = Cells(pipelines)
    expired = seconds_expired(url, run_id)
    for name, restarts in restarts_of(url, run_id).items():
        if (pipeline := cells.pipeline(name)) is not None:
            pipeline["restarts"] = restarts
    add_verdicts(url, run_id, cells)
    told = read_intervals(url, run_id, seconds_of(bounds)) if bounds and not expired else {}
    add_latencies(url, run_id, cells, told)
    add_costs(url, run_id, cells)
    services: dict[str, Any] = {}
    machine_s = 0.0
    if not expired and not watched:
        add_recoveries(url, run_id, request["workload"], pipelines)
    if bounds:
        add_throughput(url, run_id, cells, bounds)
        add_lags(url, run_id, cells, bounds)
        services, machine_s = add_resources(url, run_id, cells, bounds)
    measured_s = seconds_of(bounds) if bounds else 0.0
    source = watched_input(url, run_id, measured_s) if watched else _input(url, run_id, bounds)
    for pipeline in pipelines.values():
        if used := pipeline["resources"]:
            _add_cost_per_record(used, source["records"], machine_s, measured_s)
    report: Report = {
        "run_id": run_id,
        "workload": request["workload"]["name"],
        "domain": domain_of(request),
        "valid": conclusion["valid"],
        "steady": conclusion["detail"].get("warm_up", {}).get("steady"),
        "warm_up": warm_up_of(conclusion["detail"]),
        "invalid_reasons": conclusion["invalid_reasons"],
        **taken_from(conclusion["detail"]),
        "floor": floor_of(url, run_id),
        "floor_s": request["workload"].get("floor_s", 0),
        "environment": request["environment"],
        "input": source,
        "way_in": way_in_of(url, run_id),
        "pipelines": pipelines,
        "services": services,
        "observing": cost_of_observing(services),
        "seconds_expired": expired,
        "left_out": sorted(cells.unknown),
        "thresholds": conclusion["detail"].pop("thresholds", []),
        "conclusion": {"clean": conclusion["clean"], **conclusion["detail"]},
    }
    if watched:
        report = without_unmeasured(report) | watched_amounts(url, run_id)
    report["identity"] = Facts(report, request, {}).identity()
    add_interleaved(url, run_id, request, report)
    return report


def _empty_pipelines(request: dict[str, Any]) -> dict[str, Any]:
    """The key `pipelines` of a report before anything is added."""
    return {
        pipeline["name"]: {
            "stages": {
                stage: {
                    "outputs": 0,
                    "records_per_second": 0.0,
                    "verdicts": dict.fromkeys(VERDICTS, 0),
                    "latency_ms": {},
                    "cost_ms": None,
                }
                for stage in stages_of(request, pipeline)
            },
            "topology": request.get("topologies", {}).get(pipeline["name"]),
            "lag_records": None,
            "resources": {},
            "restarts": [],
        }
        for pipeline in request["pipelines"]
    }


def _add_cost_per_record(
    used: dict[str, Any], records: int, machine_s: float, measured_s: float
) -> None:
    """Set the cost of a pipeline and its interval in its resources."""
    cost = core_seconds_per_million_records(
        used["cpu_seconds"], records, machine_s=machine_s, measured_s=measured_s
    )
    used["core_seconds_per_million_records"] = cost
    used["core_seconds_interval"] = scaled_bounds(
        cost, used["cpu_cores"], used.pop("cpu_cores_by_sample")
    )


def build_whole_report(url: str, run_id: str) -> Report:
    """The same with the results of commands about several runs: the key `scalability`, null for a
    run outside a series, and those of `add_comparisons`. Raises QueryError."""
    report = build_report(url, run_id)
    scalability = scalability_of(url, request_of(url, run_id), build_report)
    return add_comparisons(url, report | {"scalability": scalability})


def stages_of(request: dict[str, Any], pipeline: dict[str, Any]) -> list[str]:
    """The stages that a pipeline publishes in a run, in order, given the request as JSON."""
    asked = [stage for stage in request["stages"] if stage in pipeline["stages"]]
    return list(request.get("published", {}).get(pipeline["name"], asked))


def latest_run(url: str) -> str:
    """The newest concluded run, or else the newest, because a watch always has a run in progress.
    Raises QueryError if there is none."""
    rows = query(
        url,
        "SELECT run_id FROM tidegauge.runs WHERE step_of = ''"
        " ORDER BY concluded DESC, requested_at DESC LIMIT 1",
    )
    if not rows:
        raise QueryError("There is no run yet; start one with: ./tidegauge run")
    return str(rows[0]["run_id"])


def request_of(url: str, run_id: str) -> dict[str, Any]:
    """The whole request of a run, as JSON. Raises QueryError, UnknownRunError."""
    rows = query(
        url,
        "SELECT detail FROM tidegauge.results_lifecycle AS l WHERE run_id = {run_id:String}"
        " AND event IN ('run_requested', 'watch_begun') ORDER BY l.time LIMIT 1",
        run_id=run_id,
    )
    if not rows:
        raise UnknownRunError(f"There is no run {run_id!r}; list them with: ./tidegauge runs")
    request: dict[str, Any] = json.loads(rows[0]["detail"])
    return request


def _conclusion(url: str, run_id: str) -> dict[str, Any]:
    rows = query(
        url,
        "SELECT valid, invalid_reasons, detail FROM tidegauge.results_conclusions AS k"
        " WHERE run_id = {run_id:String} AND kind = 'run'"
        " ORDER BY k.time DESC, k._offset DESC LIMIT 1",
        run_id=run_id,
    )
    if not rows:
        return {
            "valid": False,
            "invalid_reasons": ["The run is not concluded."],
            "clean": False,
            "detail": {},
        }
    detail = json.loads(rows[0]["detail"])
    return {
        "valid": bool(rows[0]["valid"]),
        "invalid_reasons": rows[0]["invalid_reasons"],
        "clean": bool(detail.pop("clean", False)),
        "detail": detail,
    }


def _measure_bounds(url: str, run_id: str, watched: bool) -> tuple[str, str] | None:
    """Begin and end of the measured time, epoch ms. If the run ended early, the end is that of the
    last second in which records were sent, or read by a watch; None without one."""
    rows = query(
        url,
        "SELECT phase, detail FROM tidegauge.results_lifecycle WHERE run_id = {run_id:String}"
        " AND event = 'phase_started' AND phase IN ('measure', 'cool_down')",
        run_id=run_id,
    )
    begun = {row["phase"]: json.loads(row["detail"]) for row in rows}
    if "measure" not in begun:
        return None
    start_ms, end_ms = (begun["measure"].get(name) for name in ("start_ms", "end_ms"))
    if not isinstance(start_ms, int) or not isinstance(end_ms, int):
        raise QueryError(f"The event phase_started of run {run_id!r} has no measured interval.")
    if "cool_down" not in begun:
        until_ms = watched_until_ms if watched else _sent_until_ms
        end_ms = min(end_ms, until_ms(url, run_id))
    return (str(start_ms), str(end_ms)) if start_ms < end_ms else None


def _sent_until_ms(url: str, run_id: str) -> int:
    """End of the last second of the measure phase in which records were sent; 0 without one."""
    rows = query(
        url,
        "SELECT toUnixTimestamp64Milli(max(second)) + 1000 AS until_ms"
        " FROM tidegauge.results_generator"
        " WHERE run_id = {run_id:String} AND phase = 'measure' HAVING count() > 0",
        run_id=run_id,
    )
    return int(rows[0]["until_ms"]) if rows else 0


def _input(url: str, run_id: str, bounds: tuple[str, str] | None) -> dict[str, Any]:
    rows = query(
        url,
        "SELECT acknowledged, send_delay_p50_ms, send_delay_p99_ms, send_delay_max_ms"
        " FROM tidegauge.generator_summary WHERE run_id = {run_id:String} AND phase = 'measure'",
        run_id=run_id,
    )
    row = rows[0] if rows else {}
    records = int(row.get("acknowledged", 0))
    return {
        "records": records,
        "records_per_second": records / seconds_of(bounds) if bounds else 0.0,
        "send_delay_ms": {name: row.get(f"send_delay_{name}_ms") for name in ("p50", "p99", "max")},
    }
