"""Resolves a load given as a share of the sustainable rate, using the newest result."""

from collections.abc import Sequence

from schemas.protocol import RunRequest
from services.runtime.clickhouse import query
from services.runtime.definitions import DefinitionError

# A rate is discarded if a run at a share of it did not sustain it.
LATEST = (
    "SELECT rate_per_second FROM tidegauge.sustainable_rates"
    " WHERE pipeline = {pipeline:String}"
    " AND arrayStringConcat(arraySort(stages), ',') = {stages:String}"
    " AND valid AND rate_per_second IS NOT NULL ORDER BY time DESC LIMIT 1"
)


def at_sustainable_share(request: RunRequest, url: str) -> RunRequest:
    """The request at its share of the newest sustainable rate of its pipelines and stages; for
    several pipelines the lowest of their rates.

    Raises DefinitionError if no rate is known, and QueryError.
    """
    share = request.workload.sustainable_share
    if share is None:
        return request
    rates = [_sustainable_rate(url, one.name, request.stages) for one in request.pipelines]
    rate = float(f"{share * min(rates):.4g}")
    return request.model_copy(update={"workload": request.workload.at_rate(rate)})


def _sustainable_rate(url: str, pipeline: str, stages: Sequence[str]) -> float:
    rows = query(url, LATEST, pipeline=pipeline, stages=",".join(sorted(stages)))
    if not rows:
        raise DefinitionError(
            f"No sustainable rate is known for {pipeline} with the stages {', '.join(stages)}; "
            "find it with: ./tidegauge run sustainable-throughput "
            f"--pipeline {pipeline} --stages {','.join(stages)}; or set a rate."
        )
    return float(rows[0]["rate_per_second"])
