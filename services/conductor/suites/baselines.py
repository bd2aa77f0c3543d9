"""Resolves thresholds with `baseline` in a suite: against a named run, or the last good run."""

from collections.abc import Sequence
from typing import Any

from analysis.thresholds import Figures, resolved
from schemas.protocol import VERDICTS, RunRequest
from schemas.threshold import LATENCY_FIGURES, parse_threshold
from schemas.validation_errors import DefinitionError
from services.runtime.clickhouse import query

# The view `figures` would be slow: it computes every figure of every run before filtering.
LAST = (
    "SELECT r.run_id AS run_id FROM tidegauge.runs AS r"
    " WHERE r.concluded AND r.valid AND r.step_of = '' AND r.workload = {workload:String}"
    " AND arraySort(r.pipelines) = splitByChar(',', {pipelines:String})"
    " AND r.run_id IN (SELECT l.run_id FROM tidegauge.results_lifecycle AS l"
    " WHERE l.event = 'run_requested'"
    " AND JSONExtractString(l.detail, 'suite', 'name') = {suite:String}"
    " AND JSONExtractFloat(l.detail, 'workload', 'load', 'rate_per_second') = {rate:Float64})"
    " AND r.run_id NOT IN (SELECT run_id FROM tidegauge.threshold_results WHERE NOT passed)"
    " ORDER BY r.requested_at DESC LIMIT 1"
)
FIGURES = "SELECT * FROM tidegauge.figures WHERE run_id = {run_id:String}"
LATENCIES = (
    "SELECT * FROM tidegauge.latency_summary WHERE run_id = {run_id:String} AND phase = 'measure'"
)


def with_baseline(request: RunRequest, baseline: str, url: str) -> RunRequest:
    """The request with numbers in its thresholds in place of a baseline's figures. These thresholds
    are dropped if there is no baseline yet: this run may become it.

    baseline: a run id, or empty. Raises DefinitionError for a named run that lacks required
    figures, and QueryError.
    """
    thresholds = [parse_threshold(line) for line in request.workload.thresholds]
    if not any(one.of_baseline for one in thresholds):
        return request
    run_id = baseline or last_good_run(request, url)
    if run_id:
        try:
            names = [one.name for one in request.pipelines]
            found = resolved(thresholds, read_figures(run_id, url), run_id, names)
        except ValueError as error:
            raise DefinitionError(f"baseline {run_id}: {error}.") from error
    else:
        found = tuple(one for one in thresholds if not one.of_baseline)
    workload = request.workload.model_copy(update={"thresholds": tuple(one.text for one in found)})
    return request.model_copy(update={"workload": workload})


def last_good_run(request: RunRequest, url: str) -> str:
    """The last valid run of the suite with the same workload, rate and pipelines and no failed
    threshold; empty if there is none."""
    rows = query(
        url,
        LAST,
        suite=request.suite.name if request.suite else "",
        workload=request.workload.name,
        rate=str(request.workload.load.rate_per_second),
        pipelines=",".join(sorted(one.name for one in request.pipelines)),
    )
    return str(rows[0]["run_id"]) if rows else ""


def read_figures(run_id: str, url: str) -> Figures:
    """Figures of a past run, for its thresholds. Raises QueryError."""
    rows, latencies = query(url, FIGURES, run_id=run_id), query(url, LATENCIES, run_id=run_id)
    return as_figures(rows, latencies)


def as_figures(rows: Sequence[dict[str, Any]], latencies: Sequence[dict[str, Any]]) -> Figures:
    """Figures from rows of the views `figures` and `latency_summary` of one run. Pure."""
    pipelines: dict[str, Any] = {}
    for row in rows:
        pipeline = pipelines.setdefault(row["pipeline"], {"stages": {}, "resources": {}})
        pipeline["resources"] |= {
            "cpu_cores": row["cpu_cores"],
            "memory_bytes_max": row["memory_bytes"],
            "core_seconds_per_million_records": row["core_seconds_per_million_records"],
        }
        lags = [pipeline["resources"].get("lag_records"), row["lag_records"]]
        pipeline["resources"]["lag_records"] = max((x for x in lags if x is not None), default=None)
        outputs = row["measured_outputs"]
        pipeline["stages"][row["stage"]] = {
            "outputs": outputs,
            "records_per_second": outputs / row["measure_s"] if outputs else None,
            "verdicts": {v: row[v] for v in VERDICTS} if row["exact"] is not None else {},
            "latency_ms": {},
        }
    for row in latencies:
        stage = pipelines.get(row["pipeline"], {"stages": {}})["stages"].get(row["stage"])
        if stage is not None:
            stage["latency_ms"][row["definition"]] = {
                name.removesuffix("_ms"): row[name] for name in LATENCY_FIGURES
            }
    first = rows[0] if rows else {}
    sent = {
        "records": first.get("input_records"),
        "records_per_second": first.get("input_per_second"),
        "send_delay_ms": {
            "p50": first.get("send_delay_p50_ms"),
            "p99": first.get("send_delay_p99_ms"),
            "max": first.get("send_delay_max_ms"),
        },
    }
    return {"input": sent, "pipelines": pipelines}
