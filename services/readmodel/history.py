"""What is known of many runs: series of their figures and the changes in these, the newest
sustainable rate, and the last good runs of a suite."""

import json
import statistics
from dataclasses import dataclass
from typing import Any

from analysis.changes.series import LATENCIES, Figure, RunFacts, Series, assemble
from analysis.changes.words import ChangeDetail
from schemas.protocol import SEEN_WITH_THE_STACK, VERDICTS, Pipeline, RunRequest
from schemas.report import (
    Figures,
    Input,
    Lag,
    Latency,
    PipelineReport,
    Resources,
    SendDelay,
    StageReport,
)
from schemas.threshold import LATENCY_FIGURES, SUSTAINABLE_RATE
from schemas.validation_errors import DefinitionError
from schemas.workload import DEFAULT_DOMAIN
from services.definitions.engines import load_engine
from services.runtime.clickhouse import StoreQuery, query, query_as

# The newest runs of each load and its pipelines, so that none displaces the others, such as hourly
# runs of watches; and of all together.
MOST_OF_EACH, MOST_RUNS = 1_000, 4_000
LAST_RUNS = 7  # a change of every run must not move the baseline at once
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
    f" '{SUSTAINABLE_RATE}' AS metric, rate_per_second AS value FROM tidegauge.sustainable_rates"
    f" WHERE valid AND rate_per_second IS NOT NULL AND run_id IN {NEWEST}"
)
VERSIONS = (
    "SELECT run_id, pipeline, any(arrayFirst(x -> endsWith(x.1, 'version'),"
    " JSONExtractKeysAndValues(detail, 'String')).2) AS version FROM tidegauge.results_lifecycle"
    f" WHERE event = 'ready' AND pipeline != '' AND run_id IN {NEWEST} GROUP BY run_id, pipeline"
)
USAGE = (
    "SELECT u.run_id AS run_id,"
    f" if(countIf(service IN {tuple(sorted(SEEN_WITH_THE_STACK))}) > 0,"
    " sumIf(u.mean_cpu_cores, service = 'machine')"
    " - sumIf(u.mean_cpu_cores, service != 'machine'), NULL) AS others_cores,"
    " 1e6 * nullIf(sumIf(u.cpu_seconds, service = 'generator'), 0) / any(g.records)"
    " AS generator_us FROM tidegauge.resources_summary AS u LEFT JOIN"
    " (SELECT run_id, toNullable(nullIf(sum(s.acknowledged), 0)) AS records"
    f" FROM tidegauge.generator_summary AS s WHERE run_id IN {NEWEST} GROUP BY run_id) AS g"
    f" ON g.run_id = u.run_id WHERE u.run_id IN {NEWEST} GROUP BY u.run_id"
)
# A rate is discarded if a run at a share of it did not sustain it. A search has one pipeline.
LATEST_RATE = (
    "SELECT rate_per_second, interval_per_second[2] AS not_sustained_per_second"
    " FROM tidegauge.sustainable_rates"
    " WHERE pipeline = {pipeline:String}"
    " AND arrayStringConcat(arraySort(stages), ',') = {stages:String}"
    " AND valid AND rate_per_second IS NOT NULL"
    " AND run_id IN (SELECT l.run_id FROM tidegauge.results_lifecycle AS l"
    " WHERE l.event = 'run_requested'"
    " AND arrayAll(one -> JSONExtractRaw(l.detail, 'pipelines', 1, splitByChar('=', one)[1])"
    " = splitByChar('=', one)[2], splitByChar(',', {workers:String}))"
    " AND JSONExtractFloat(l.detail, 'pipelines', 1, 'cores') = {core_limit:Float64}"
    " AND JSONExtractString(l.detail, 'environment', 'processor') = {processor:String}"
    " AND JSONExtractFloat(l.detail, 'environment', 'cores') = {cores:Float64}"
    " AND JSONExtractString(l.detail, 'workload', 'content', 'format') = {format:String}"
    " AND JSONExtractString(l.detail, 'workload', 'transport') = {transport:String}"
    " AND JSONExtractInt(l.detail, 'workload', 'partitions') = {partitions:Int64}"
    " AND arrayStringConcat(arraySort(arrayMap(one -> concat(one.1, '=', toString(one.2)),"
    " JSONExtractKeysAndValues(l.detail, 'workload', 'windows', 'Int64'))), ',')"
    " = {windows:String}"
    " AND JSONExtractString(l.detail, 'domain', 'name') = {domain:String})"
    " ORDER BY time DESC LIMIT 1"
)
# The view `figures` would be slow: it computes every figure of every run before filtering.
# A run at a share of the sustainable rate has another rate after each search.
LAST_GOOD = (
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
    " AND arraySum(records -> toInt64(records), extractAll(JSONExtractRaw(l.detail, 'workload',"
    " 'load'), '\"burst_records\":([0-9]+)')) = {burst_records:Int64}"
    " AND JSONExtractInt(l.detail, 'workload', 'phases', 'measure_s') = {measure_s:Int64}"
    " AND JSONExtract(l.detail, 'stages', 'Array(String)') = splitByChar(',', {stages:String})"
    " AND ifNull(nullIf(JSONExtractString(l.detail, 'domain', 'name'), ''),"
    " JSONExtractString(l.detail, 'workload', 'domain')) = {domain:String})"
    " AND r.run_id NOT IN (SELECT run_id FROM tidegauge.threshold_results WHERE NOT passed)"
    " ORDER BY doubtful, r.requested_at DESC LIMIT {most:UInt32}"
)


def read_series(url: str) -> list[Series]:
    """Every series of the store, in the order of their first runs."""
    limits = {"each": str(MOST_OF_EACH), "most": str(MOST_RUNS)}
    latencies = (
        Figure(row["run_id"], row["pipeline"], row["stage"], metric, row[metric])
        for row in query(url, FIGURES, **limits)
        for metric in LATENCIES
    )
    rates = query_as(Figure, url, RATES, **limits)
    return assemble(runs_of_series(url, **limits), [*latencies, *rates])


def runs_of_series(url: str, each: str, most: str) -> list[RunFacts]:
    """The newest runs that count for series, oldest first: so many of each load and its pipelines,
    and of all."""
    limits = {"each": each, "most": most}
    usage = {row.pop("run_id"): row for row in query(url, USAGE, **limits)}
    versions: dict[str, dict[str, str]] = {}
    for row in query(url, VERSIONS, **limits):
        versions.setdefault(row["run_id"], {})[row["pipeline"]] = row["version"]
    return [
        RunFacts(
            row["run_id"],
            json.loads(row["request"]),
            row["at_ms"],
            row["steady"],
            engine_versions=versions.get(row["run_id"], {}),
            **usage.get(row["run_id"], {}),
        )
        for row in query(url, RUNS, **limits)
    ]


def published_changes(url: str) -> list[ChangeDetail]:
    """The details of all published change points."""
    rows = query(
        url, "SELECT detail FROM tidegauge.results_conclusions WHERE kind = 'change_point'"
    )
    return [json.loads(row["detail"]) for row in rows]


def at_sustainable_share(request: RunRequest, url: str, ask: StoreQuery = query) -> RunRequest:
    """The request at its share of the newest sustainable rate of its pipelines and stages; for
    several pipelines the lowest of their rates.

    Raises DefinitionError if no rate is known.
    """
    if request.workload.sustainable_share is None:
        return request
    rates = [_sustainable_rate(url, request, pipeline, ask) for pipeline in request.pipelines]
    return min(
        (at_share_of(request, rate) for rate in rates),
        key=lambda at_share: at_share.workload.load.base_rate_per_second,
    )


@dataclass(frozen=True)
class SearchedRate:
    """The result of a search, records per second. not_sustained: the lowest rate that was not
    sustained, None if every one was."""

    sustained: float
    not_sustained: float | None = None


def at_share_of(request: RunRequest, rate: SearchedRate) -> RunRequest:
    """The request at its share of a rate; unchanged if it is at none. A share above 1 is an
    overload for certain: a share of the lowest rate that was not sustained."""
    share = request.workload.sustainable_share
    if share is None:
        return request
    of = rate.not_sustained if share > 1 and rate.not_sustained else rate.sustained
    workload = request.workload.at_rate(float(f"{share * of:.4g}"))
    return request.model_copy(update={"workload": workload})


def _sustainable_rate(
    url: str, request: RunRequest, pipeline: Pipeline, ask: StoreQuery
) -> SearchedRate:
    """The newest rate of a search with the same workers and cores of the pipeline, stages, windows,
    domain, ways in and machine."""
    workload, stages, domain = request.workload, request.stages, request.domain.name
    rows = ask(
        url,
        LATEST_RATE,
        pipeline=pipeline.name,
        stages=",".join(sorted(stages)),
        workers=_workers(pipeline),
        core_limit=str(pipeline.cores or 0),
        domain=domain,
        format=workload.content.format,
        transport=workload.transport,
        partitions=str(workload.partitions or 0),
        windows=",".join(sorted(f"{name}={s}" for name, s in workload.windows.items())),
        processor=str(request.environment.get("processor", "")),
        cores=str(request.environment.get("cores") or 0),
    )
    if not rows:
        of_domain = "" if domain == DEFAULT_DOMAIN else f" --domain {workload.domain}"
        raise DefinitionError(
            f"No sustainable rate is known for {pipeline.name} with the stages "
            f"{', '.join(stages)} of {domain}, on such a machine with as many workers; find it "
            "with: ./tidegauge run sustainable-throughput "
            f"--pipeline {pipeline.name} --stages {','.join(stages)}{of_domain}; or set a rate."
        )
    not_sustained = rows[0]["not_sustained_per_second"]
    return SearchedRate(
        float(rows[0]["rate_per_second"]), None if not_sustained is None else float(not_sustained)
    )


def _workers(pipeline: Pipeline) -> str:
    """The settings that set the number of workers, as `name=value,…`."""
    ability = load_engine(pipeline.engine).spec.ability_of(pipeline)
    settings = pipeline.settings
    return ",".join(f"{name}={settings[name]}" for name in (ability.scales_by if ability else ()))


def last_good_runs(request: RunRequest, url: str, ask: StoreQuery = query) -> list[str]:
    """The newest LAST_RUNS valid runs of the suite with the same workload, rate or share of the
    sustainable rate, size of bursts, measured time, domain, stages, pipelines, processor and cores,
    and no failed threshold; newest first. Unsteady and disturbed runs only if there are no
    others."""
    workload, load = request.workload, request.workload.load
    rows = ask(
        url,
        LAST_GOOD,
        suite=request.suite.name if request.suite else "",
        workload=workload.name,
        share=str(workload.sustainable_share or 0),
        rate=str(load.base_rate_per_second),
        burst_records=str(sum(burst.records for burst in load.bursts)),
        measure_s=str(workload.phases.measure_s),
        domain=request.domain.name,
        stages=",".join(request.stages),
        pipelines=",".join(sorted(pipeline.name for pipeline in request.pipelines)),
        processor=str(request.environment.get("processor", "")),
        cores=str(request.environment.get("cores") or 0),
        most=str(LAST_RUNS),
    )
    good = [row for row in rows if not row["doubtful"]] or rows
    return [str(row["run_id"]) for row in good]


def past_figures(url: str, run_ids: list[str], ask: StoreQuery = query) -> Figures:
    """What thresholds limit, of a past run; of several the median of each figure."""
    return medians([_figures_of(url, run_id, ask) for run_id in run_ids])


def medians(figures: list[Figures]) -> Figures:
    """The median of each figure over runs. Pure."""
    return Figures.model_validate(_medians([figure.as_json() for figure in figures]))


def _medians(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        names = dict.fromkeys(name for value in values for name in value)
        return {
            name: _medians([value[name] for value in values if name in value]) for name in names
        }
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _figures_of(url: str, run_id: str, ask: StoreQuery) -> Figures:
    rows = ask(url, "SELECT * FROM tidegauge.figures WHERE run_id = {run_id:String}", run_id=run_id)
    latencies = ask(
        url,
        "SELECT * FROM tidegauge.latency_summary"
        " WHERE run_id = {run_id:String} AND phase = 'measure'",
        run_id=run_id,
    )
    rates = ask(
        url,
        "SELECT rate_per_second FROM tidegauge.sustainable_rates WHERE run_id = {run_id:String}",
        run_id=run_id,
    )
    figures = as_figures(rows, latencies)
    rate = rates[0]["rate_per_second"] if rates else None
    return figures.model_copy(update={"sustainable_rate": rate})


def as_figures(rows: list[dict[str, Any]], latencies: list[dict[str, Any]]) -> Figures:
    """Figures from rows of the views `figures` and `latency_summary` of one run. Pure."""
    by_definition: dict[tuple[str, str], dict[str, Latency]] = {}
    for row in latencies:
        figures = {name.removesuffix("_ms"): row[name] for name in LATENCY_FIGURES}
        place = (row["pipeline"], row["stage"])
        by_definition.setdefault(place, {})[row["definition"]] = Latency(**figures)
    pipelines: dict[str, PipelineReport] = {}
    for row in rows:
        name, stage = row["pipeline"], row["stage"]
        before = pipelines.get(name, PipelineReport())
        cell = _stage(row, by_definition.get((name, stage), {}))
        pipelines[name] = PipelineReport(
            stages=before.stages | {stage: cell},
            lag_records=Lag(max=_most(before.lag_records, row["lag_records"])),
            resources=Resources(
                cpu_cores=row["cpu_cores"],
                memory_bytes_max=row["memory_bytes"],
                heap_used_bytes_max=row["heap_bytes"],
                core_seconds_per_million_records=row["core_seconds_per_million_records"],
            ),
        )
    return Figures(input=_input(rows[0]) if rows else Input(), pipelines=pipelines)


def _stage(row: dict[str, Any], latencies: dict[str, Latency]) -> StageReport:
    outputs = row["measured_outputs"]
    return StageReport(
        outputs=outputs,
        records_per_second=outputs / row["measure_s"] if outputs else None,
        verdicts={name: row[name] for name in VERDICTS} if row["exact"] is not None else {},
        latency_ms=latencies,
    )


def _most(lag: Lag | None, records: int | None) -> int | float | None:
    known = [most for most in (lag.max if lag else None, records) if most is not None]
    return max(known, default=None)


def _input(row: dict[str, Any]) -> Input:
    return Input(
        records=row["input_records"],
        records_per_second=row["input_per_second"],
        send_delay_ms=SendDelay(
            p50=row["send_delay_p50_ms"],
            p99=row["send_delay_p99_ms"],
            max=row["send_delay_max_ms"],
        ),
    )
