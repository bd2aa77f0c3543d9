"""Resolves thresholds with `baseline` in a suite: against a named run, or the medians of the last
good runs."""

import statistics
from collections.abc import Sequence
from typing import Any

from analysis.thresholds import Figures, resolved
from schemas.protocol import VERDICTS, RunRequest
from schemas.threshold import LATENCY_FIGURES, parse_threshold
from schemas.validation_errors import DefinitionError
from services.runtime.clickhouse import query

# The view `figures` would be slow: it computes every figure of every run before filtering.
# A run at a share of the sustainable rate has another rate after each search.
LAST = (
    "SELECT r.run_id AS run_id, ifNull(NOT r.steady, false) OR r.run_id IN"
    " (SELECT run_id FROM tidegauge.run_attribution WHERE disturbed) AS doubtful"
    " FROM tidegauge.runs AS r"
    " WHERE r.concluded AND r.valid AND r.step_of = '' AND r.workload = {workload:String}"
    " AND arraySort(r.pipelines) = splitByChar(',', {pipelines:String})"
    " AND r.run_id IN (SELECT l.run_id FROM tidegauge.results_lifecycle AS l"
    " WHERE l.event = 'run_requested'"
    " AND JSONExtractString(l.detail, 'suite', 'name') = {suite:String}"
    " AND JSONExtractString(l.detail, 'environment', 'processor') = {processor:String}"
    " AND JSONExtractFloat(l.detail, 'environment', 'cores') = {cores:Float64}"
    " AND JSONExtractFloat(l.detail, 'workload', 'sustainable_share') = {share:Float64}"
    " AND ({share:Float64} > 0"
    " OR JSONExtractFloat(l.detail, 'workload', 'load', 'rate_per_second') = {rate:Float64})"
    " AND JSONExtractInt(l.detail, 'workload', 'load', 'burst_records') + arraySum(part ->"
    " JSONExtractInt(part, 'burst_records'),"
    " JSONExtractArrayRaw(l.detail, 'workload', 'load', 'parts')) = {burst_records:Int64}"
    " AND JSONExtractInt(l.detail, 'workload', 'phases', 'measure_s') = {measure_s:Int64}"
    " AND JSONExtract(l.detail, 'stages', 'Array(String)') = splitByChar(',', {stages:String})"
    " AND ifNull(nullIf(JSONExtractString(l.detail, 'domain', 'name'), ''),"
    " JSONExtractString(l.detail, 'workload', 'domain')) = {domain:String})"
    " AND r.run_id NOT IN (SELECT run_id FROM tidegauge.threshold_results WHERE NOT passed)"
    " ORDER BY doubtful, r.requested_at DESC LIMIT {most:UInt32}"
)
FOUND = "SELECT rate_per_second FROM tidegauge.sustainable_rates WHERE run_id = {run_id:String}"
MOST_RUNS = 7  # a change of every run must not move the baseline at once
FIGURES = "SELECT * FROM tidegauge.figures WHERE run_id = {run_id:String}"
LATENCIES = (
    "SELECT * FROM tidegauge.latency_summary WHERE run_id = {run_id:String} AND phase = 'measure'"
)


def with_baseline(request: RunRequest, baseline: str, url: str) -> RunRequest:
    """The request with numbers in its thresholds in place of a baseline's figures. These thresholds
    are dropped if there is no baseline yet: this run may become it.

    baseline: a run id, or empty for the last good runs. Raises DefinitionError if they lack
    required figures, and QueryError.
    """
    thresholds = [parse_threshold(line) for line in request.workload.thresholds]
    if not any(one.of_baseline for one in thresholds):
        return request
    run_ids = [baseline] if baseline else last_good_runs(request, url)
    if run_ids:
        origin = run_ids[0] if len(run_ids) == 1 else f"the median of {len(run_ids)} runs"
        figures = medians([read_figures(run_id, url) for run_id in run_ids])
        measured = {one.name: request.stages_of(one) for one in request.pipelines}
        try:
            found = resolved(thresholds, figures, origin, measured)
        except ValueError as error:
            raise DefinitionError(f"baseline {origin}: {error}.") from error
    else:
        found = tuple(one for one in thresholds if not one.of_baseline)
    workload = request.workload.model_copy(update={"thresholds": tuple(one.text for one in found)})
    return request.model_copy(update={"workload": workload})


def last_good_runs(request: RunRequest, url: str) -> list[str]:
    """The newest MOST_RUNS valid runs of the suite with the same workload, rate or share of the
    sustainable rate, size of bursts, measured time, domain, stages, pipelines, processor and cores,
    and no failed threshold; newest first. Unsteady and disturbed runs only if there are no
    others."""
    workload, load = request.workload, request.workload.load
    rows = query(
        url,
        LAST,
        suite=request.suite.name if request.suite else "",
        workload=workload.name,
        share=str(workload.sustainable_share or 0),
        rate=str(load.rate_per_second),
        burst_records=str(sum(one.burst_records for one in (load, *load.parts))),
        measure_s=str(workload.phases.measure_s),
        domain=request.domain.name,
        stages=",".join(request.stages),
        pipelines=",".join(sorted(one.name for one in request.pipelines)),
        processor=str(request.environment.get("processor", "")),
        cores=str(request.environment.get("cores") or 0),
        most=str(MOST_RUNS),
    )
    good = [row for row in rows if not row["doubtful"]] or rows
    return [str(row["run_id"]) for row in good]


def read_figures(run_id: str, url: str) -> Figures:
    """Figures of a past run, for its thresholds. Raises QueryError."""
    rows, latencies = query(url, FIGURES, run_id=run_id), query(url, LATENCIES, run_id=run_id)
    search = next(iter(query(url, FOUND, run_id=run_id)), {})
    return as_figures(rows, latencies) | {"conclusion": {"search": search}}


def medians(found: Sequence[Any]) -> Any:
    """The median of each figure over runs, structured as the figures of one run. Pure."""
    if isinstance(found[0], dict):
        names = dict.fromkeys(name for one in found for name in one)
        return {name: medians([one[name] for one in found if name in one]) for name in names}
    known = [one for one in found if one is not None]
    return statistics.median(known) if known else None


def as_figures(rows: Sequence[dict[str, Any]], latencies: Sequence[dict[str, Any]]) -> Figures:
    """Figures from rows of the views `figures` and `latency_summary` of one run. Pure."""
    pipelines: dict[str, Any] = {}
    for row in rows:
        pipeline = pipelines.setdefault(row["pipeline"], {"stages": {}, "resources": {}})
        pipeline["resources"] |= {
            "cpu_cores": row["cpu_cores"],
            "memory_bytes_max": row["memory_bytes"],
            "heap_used_bytes_max": row["heap_bytes"],
            "core_seconds_per_million_records": row["core_seconds_per_million_records"],
        }
        lags = [pipeline.get("lag_records", {}).get("max"), row["lag_records"]]
        pipeline["lag_records"] = {"max": max((x for x in lags if x is not None), default=None)}
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
