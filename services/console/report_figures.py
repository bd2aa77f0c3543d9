"""The figures of a report by pipeline and stage: verdicts, latencies, rates, lags and resources."""

from typing import Any

from schemas.protocol import DEFINITIONS, MACHINE, VERDICTS
from services.console.intervals import Intervals
from services.runtime.clickhouse import query

USED = ("cpu_cores", "cpu_seconds", "memory_bytes_max", "heap_used_bytes_max")
PERCENTILES = ("min", "p50", "p90", "p95", "p99", "p999", "max", "mean", "middle")


class Cells:
    """The cells of a report that rows belong to.

    unknown: pipelines and stages of rows that are not in the run's plan; their figures are omitted.
    """

    def __init__(self, pipelines: dict[str, Any]) -> None:
        self.unknown: set[str] = set()
        self._pipelines = pipelines

    def pipeline(self, name: str) -> dict[str, Any] | None:
        """The cell of a pipeline; None if it is not in the plan."""
        found: dict[str, Any] | None = self._pipelines.get(name)
        if found is None:
            self.unknown.add(name)
        return found

    def stage(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """The cell of a row's stage; None if it is not in the plan."""
        stages = self._pipelines.get(row["pipeline"], {}).get("stages", {})
        found: dict[str, Any] | None = stages.get(row["stage"])
        if found is None:
            self.unknown.add(f"{row['pipeline']} {row['stage']}")
        return found


def seconds_of(bounds: tuple[str, str]) -> float:
    """Seconds between two times in epoch milliseconds."""
    return (int(bounds[1]) - int(bounds[0])) / 1000


def _within(column: str) -> str:
    """A condition that a time is within the bounds from `_times`."""
    return (
        f"{column} >= fromUnixTimestamp64Milli({{start:Int64}})"
        f" AND {column} < fromUnixTimestamp64Milli({{end:Int64}})"
    )


def _times(bounds: tuple[str, str]) -> dict[str, str]:
    return {"start": bounds[0], "end": bounds[1]}


def add_verdicts(url: str, run_id: str, cells: Cells) -> None:
    """Verdicts of each stage and its number of outputs."""
    rows = query(
        url,
        "SELECT * FROM tidegauge.verdict_totals"
        " WHERE run_id = {run_id:String} AND phase = 'measure'",
        run_id=run_id,
    )
    for row in rows:
        if (cell := cells.stage(row)) is None:
            continue
        cell["verdicts"] = {verdict: int(row[verdict]) for verdict in VERDICTS}
        cell["outputs"] = sum(int(row[verdict]) for verdict in VERDICTS if verdict != "missing")


def add_latencies(url: str, run_id: str, cells: Cells, told: Intervals) -> None:
    """Latencies of each stage by definition, in ms. told: the known intervals."""
    rows = query(
        url,
        "SELECT * FROM tidegauge.latency_summary"
        " WHERE run_id = {run_id:String} AND phase = 'measure'",
        run_id=run_id,
    )
    known = [row for row in rows if row["definition"] in DEFINITIONS]
    for row in sorted(known, key=lambda row: DEFINITIONS.index(row["definition"])):
        if (cell := cells.stage(row)) is not None:
            figures = {name: row[f"{name}_ms"] for name in PERCENTILES}
            intervals = told.get((row["pipeline"], row["stage"], row["definition"]))
            counts = {name: row[name] for name in ("count", "negative")}
            latency = {**counts, **figures, "intervals": intervals}
            cell["latency_ms"][row["definition"]] = latency
    cells.unknown |= {
        f"definition {row['definition']}" for row in rows if row["definition"] not in DEFINITIONS
    }


def add_costs(url: str, run_id: str, cells: Cells) -> None:
    """The latency each stage of a chain adds to the nearest measured stage that it reads."""
    rows = query(
        url,
        "SELECT pipeline, stage, stage_before, p50_cost_ms, p99_cost_ms FROM tidegauge.stage_cost"
        " WHERE run_id = {run_id:String} AND phase = 'measure' AND definition = 'latest'"
        " AND stage_before IS NOT NULL",
        run_id=run_id,
    )
    for row in rows:
        if (cell := cells.stage(row)) is not None:
            figures = {name: row[f"{name}_cost_ms"] for name in ("p50", "p99")}
            cell["cost_ms"] = {"stage_before": row["stage_before"], **figures}


def add_throughput(url: str, run_id: str, cells: Cells, bounds: tuple[str, str]) -> None:
    """Outputs per second of each stage."""
    rows = query(
        url,
        "SELECT pipeline, stage, sum(records) AS total FROM tidegauge.results_throughput"
        " WHERE run_id = {run_id:String} AND pipeline != ''"
        f" AND {_within('second')} GROUP BY pipeline, stage",
        run_id=run_id,
        **_times(bounds),
    )
    for row in rows:
        if (cell := cells.stage(row)) is not None:
            cell["records_per_second"] = row["total"] / seconds_of(bounds)


def add_lags(url: str, run_id: str, cells: Cells, bounds: tuple[str, str]) -> None:
    """Unread records of each pipeline by stage: the maximum, and at the end."""
    rows = query(
        url,
        "SELECT pipeline, max(most) AS most_records, max(newest) AS end_records FROM"
        " (SELECT pipeline, stage, max(p.lag_records) AS most,"
        " argMax(p.lag_records, (p.time, p._offset)) AS newest"
        " FROM tidegauge.results_pipeline AS p"
        " WHERE run_id = {run_id:String} AND p.lag_records IS NOT NULL"
        f" AND {_within('p.time')} GROUP BY pipeline, stage) GROUP BY pipeline",
        run_id=run_id,
        **_times(bounds),
    )
    for row in rows:
        if (pipeline := cells.pipeline(row["pipeline"])) is not None:
            figures = {"max": int(row["most_records"]), "end": int(row["end_records"])}
            pipeline["lag_records"] = figures


def add_resources(
    url: str, run_id: str, cells: Cells, bounds: tuple[str, str]
) -> tuple[dict[str, Any], float]:
    """Resource usage of each pipeline; returns that of the services that belong to no pipeline."""
    rows = query(
        url,
        "SELECT service, pipeline, sum(r.cpu_seconds) AS cpu_seconds,"
        " sum(interval_s) AS sampled_s,"
        " cpu_seconds / sampled_s AS cpu_cores, max(memory_bytes) AS memory_bytes_max,"
        " max(heap_used_bytes) AS heap_used_bytes_max,"
        " groupArrayIf((toUnixTimestamp64Milli(time), r.cpu_seconds, interval_s), r.pipeline != '')"
        " AS samples"
        " FROM tidegauge.results_resources AS r WHERE run_id = {run_id:String}"
        f" AND {_within('time')} GROUP BY service, pipeline ORDER BY service, pipeline",
        run_id=run_id,
        **_times(bounds),
    )
    services: dict[str, Any] = {}
    machine_s = 0.0
    for row in rows:
        figures = {name: row[name] for name in USED}
        if row["service"] == MACHINE:
            machine_s = row["sampled_s"]
        if not row["pipeline"]:
            services[row["service"]] = figures
        elif (pipeline := cells.pipeline(row["pipeline"])) is not None:
            by_sample = [used / (of_s or 1) for _at, used, of_s in sorted(row["samples"])]
            pipeline["resources"] = figures | {"cpu_cores_by_sample": by_sample}
    return services, machine_s
