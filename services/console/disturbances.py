"""Disturbances of a run and the recovery of each stage, from ClickHouse."""

import json
from collections import defaultdict
from typing import Any

from analysis.recovery import Disturbance, planned, recovery
from schemas.workload import Workload
from services.runtime.clickhouse import query

_SECONDS = (
    "SELECT pipeline, stage, toUnixTimestamp64Milli(second) AS second_ms,"
    " quantileExactWeighted(0.5)(latency_ms, r.count) AS median_ms, sum(r.count) AS outputs"
    " FROM tidegauge.results_latency AS r WHERE run_id = {run_id:String}"
    " AND definition = 'latest' GROUP BY pipeline, stage, second"
)
_EVENTS = (
    "SELECT event, phase, toUnixTimestamp64Milli(time) AS time_ms, detail"
    " FROM tidegauge.results_lifecycle WHERE run_id = {run_id:String}"
    " AND event IN ('killed', 'phase_started') ORDER BY time"
)


def add_recoveries(
    url: str, run_id: str, workload: dict[str, Any], pipelines: dict[str, Any]
) -> None:
    """Add `recovery` to every stage of a report if something disturbed the run. Needs the counts
    per second. Raises QueryError."""
    disturbances = _disturbances(url, run_id, Workload.model_validate(workload))
    if not disturbances:
        return
    medians: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    outputs: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for row in query(url, _SECONDS, run_id=run_id):
        place, second = (row["pipeline"], row["stage"]), int(row["second_ms"]) // 1000
        medians[place][second] = float(row["median_ms"])
        outputs[place][second] = int(row["outputs"])
    for name, pipeline in pipelines.items():
        for stage, cell in pipeline["stages"].items():
            cell["recovery"] = recovery(disturbances, medians[name, stage], outputs[name, stage])


def _disturbances(url: str, run_id: str, workload: Workload) -> list[Disturbance]:
    load = workload.load
    if not (
        workload.kills
        or workload.pipelines_start_s
        or load.shape in ("periodic_burst", "fluctuating")
    ):
        return []
    rows = query(url, _EVENTS, run_id=run_id)
    phases = {row["phase"]: json.loads(row["detail"]) for row in rows if row["phase"]}
    if "warm_up" not in phases or "cool_down" not in phases:
        return []
    start_s = int(phases["warm_up"]["start_ms"]) // 1000
    end_s = int(phases["cool_down"]["end_ms"]) // 1000
    found = planned(load, start_s, end_s)
    if workload.pipelines_start_s:
        begun_s = start_s + workload.pipelines_start_s
        found.append(Disturbance("start", "start of the pipelines", begun_s, end_s))
    kills = [row for row in rows if row["event"] == "killed"]
    # Missed outputs may arrive as late as the judgement allows.
    last_s = end_s + workload.judgement.give_up_ms // 1000
    times_s = [*(int(row["time_ms"]) // 1000 for row in kills), last_s]
    for row, at_s, until_s in zip(kills, times_s, times_s[1:], strict=False):
        name = f"kill of the {json.loads(row['detail'])['target']}"
        found.append(Disturbance("kill", name, at_s, until_s))
    return found
