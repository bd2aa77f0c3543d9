"""The topic catalogue: every topic with its record types and retention.

Input and output topics get their timestamps from the broker
(`message.timestamp.type=LogAppendTime`): all latencies are measured by it. Every topic has a
retention limit.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.domain import DomainSpec

HOUR_S = 3600
DAY_S = 24 * HOUR_S
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class Topic:
    """One topic.

    records: names of the schemas it may carry. retention_s and retention_bytes (per partition):
    whichever is reached first. log_append_time: False only where producer timestamps are needed.
    """

    name: str
    records: tuple[str, ...]
    partitions: int = 1
    retention_s: int = 7 * DAY_S
    retention_bytes: int = 1024 * MEBIBYTE
    log_append_time: bool = True
    config: dict[str, str] = field(default_factory=dict)


ENGINE_PREFIX = "engine."
CONTROL = "control.runs"
DEAD_LETTER = "dead-letter"

LIFECYCLE = "results.lifecycle"
LATENCY = "results.latency"
THROUGHPUT = "results.throughput"
VERDICTS = "results.verdicts"
GENERATOR = "results.generator"
PIPELINE = "results.pipeline"
RESOURCES = "results.resources"
METRICS = "results.metrics"
CONCLUSIONS = "results.conclusions"
PAIRS = "results.pairs"
SLICES = "results.slices"
FETCHES = "results.fetches"
RESULTS = (
    LIFECYCLE,
    LATENCY,
    THROUGHPUT,
    VERDICTS,
    GENERATOR,
    PIPELINE,
    RESOURCES,
    CONCLUSIONS,
    PAIRS,
    METRICS,
    SLICES,
    FETCHES,
)


def record_of(results_topic: str) -> str:
    """Schema name of a `results.*` topic: `results.latency` carries `results_latency`."""
    return results_topic.replace(".", "_")


def fixed_topics(results_days: int = 30, results_mebibytes: int = 1024) -> tuple[Topic, ...]:
    """Every topic that is independent of domain and pipelines: control, dead letters and results.

    results_days, results_mebibytes: retention of results and dead letters, in days and per topic.
    """
    carried = {DEAD_LETTER: "dead_letter"} | {name: record_of(name) for name in RESULTS}
    kept = tuple(
        Topic(name, (record,), 1, results_days * DAY_S, results_mebibytes * MEBIBYTE)
        for name, record in carried.items()
    )
    return (Topic(CONTROL, ("control_command",)), *kept)


def output_topic(pipeline: str, stage: str) -> str:
    """Name of a pipeline's output topic for a stage: `output.<pipeline>.<stage>`."""
    return f"output.{pipeline}.{stage}"


def engine_group(pipeline: str, run_id: str) -> str:
    """Prefix of consumer groups, transactions and internal topics of a pipeline:
    `engine.<pipeline>.<run_id>`."""
    return f"{ENGINE_PREFIX}{pipeline}.{run_id}"


def domain_topics(domain: DomainSpec, partitions: int = 1) -> tuple[Topic, ...]:
    """The input topics of a domain, in order."""
    return tuple(
        Topic(each.topic, (each.record,), partitions, 6 * HOUR_S, 4096 * MEBIBYTE)
        for each in domain.inputs
    )


def published_topics(
    domain: DomainSpec, pipeline: str, stages: Iterable[str], partitions: int = 1
) -> tuple[Topic, ...]:
    """The output topics of one pipeline, in the order of `stages`."""
    return tuple(
        Topic(
            output_topic(pipeline, stage),
            domain.records_of(stage),
            partitions,
            6 * HOUR_S,
            4096 * MEBIBYTE,
        )
        for stage in stages
    )
