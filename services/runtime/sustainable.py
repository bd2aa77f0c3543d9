"""Resolves a load given as a share of the sustainable rate, using the newest result."""

from schemas.protocol import Pipeline, RunRequest
from schemas.workload import DEFAULT_DOMAIN
from services.runtime.clickhouse import query
from services.runtime.definitions import DefinitionError
from services.runtime.engines import load_engine

# A rate is discarded if a run at a share of it did not sustain it. A search has one pipeline.
LATEST = (
    "SELECT rate_per_second FROM tidegauge.sustainable_rates"
    " WHERE pipeline = {pipeline:String}"
    " AND arrayStringConcat(arraySort(stages), ',') = {stages:String}"
    " AND valid AND rate_per_second IS NOT NULL"
    " AND run_id IN (SELECT l.run_id FROM tidegauge.results_lifecycle AS l"
    " WHERE l.event = 'run_requested'"
    " AND arrayAll(one -> JSONExtractRaw(l.detail, 'pipelines', 1, splitByChar('=', one)[1])"
    " = splitByChar('=', one)[2], splitByChar(',', {workers:String}))"
    " AND JSONExtractString(l.detail, 'environment', 'processor') = {processor:String}"
    " AND JSONExtractFloat(l.detail, 'environment', 'cores') = {cores:Float64}"
    " AND JSONExtractString(l.detail, 'workload', 'content', 'format') = {format:String}"
    " AND JSONExtractString(l.detail, 'workload', 'transport') = {transport:String}"
    " AND JSONExtractInt(l.detail, 'workload', 'partitions') = {partitions:Int64}"
    " AND ifNull(nullIf(JSONExtractString(l.detail, 'domain', 'name'), ''),"
    " JSONExtractString(l.detail, 'workload', 'domain')) = {domain:String})"
    " ORDER BY time DESC LIMIT 1"
)


def at_sustainable_share(request: RunRequest, url: str) -> RunRequest:
    """The request at its share of the newest sustainable rate of its pipelines and stages; for
    several pipelines the lowest of their rates.

    Raises DefinitionError if no rate is known, and QueryError.
    """
    share = request.workload.sustainable_share
    if share is None:
        return request
    rates = [_sustainable_rate(url, request, one) for one in request.pipelines]
    rate = float(f"{share * min(rates):.4g}")
    return request.model_copy(update={"workload": request.workload.at_rate(rate)})


def _sustainable_rate(url: str, request: RunRequest, pipeline: Pipeline) -> float:
    """The newest rate of a search with the same workers of the pipeline, stages, domain, ways in
    and machine."""
    workload, stages = request.workload, request.stages
    domain = request.domain.name
    rows = query(
        url,
        LATEST,
        pipeline=pipeline.name,
        stages=",".join(sorted(stages)),
        workers=_workers(pipeline),
        domain=domain,
        format=workload.content.format,
        transport=workload.transport,
        partitions=str(workload.partitions or 0),
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
    return float(rows[0]["rate_per_second"])


def _workers(pipeline: Pipeline) -> str:
    """The settings that set the number of workers, as `name=value,…`."""
    ability = load_engine(pipeline.engine).spec.ability_of(pipeline)
    settings = pipeline.settings
    return ",".join(f"{name}={settings[name]}" for name in (ability.scales_by if ability else ()))
