"""The topic catalogue: every topic, what it carries and how long it keeps it.

Input and output topics take their time from the broker (`message.timestamp.type=LogAppendTime`):
it is the mark against which everything is measured. Retention bounds every topic.
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
    whichever is reached first. log_append_time: False only where the producer's time is wanted.
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
)


def record_of(results_topic: str) -> str:
    """Schema name of a `results.*` topic: `results.latency` carries `results_latency`."""
    return results_topic.replace(".", "_")


def fixed_topics(results_days: int = 30, results_mebibytes: int = 1024) -> tuple[Topic, ...]:
    """Every topic that exists whatever runs: control, dead letters and results.

    results_days, results_mebibytes: how long results and dead letters stay on the bus, and how much
    of them per topic.
    """
    carried = {DEAD_LETTER: "dead_letter"} | {name: record_of(name) for name in RESULTS}
    kept = tuple(
        Topic(name, (record,), 1, results_days * DAY_S, results_mebibytes * MEBIBYTE)
        for name, record in carried.items()
    )
    return (Topic(CONTROL, ("control_command",)), *kept)


def output_topic(pipeline: str, stage: str) -> str:
    """Name of the topic a pipeline publishes a stage to: `output.<pipeline>.<stage>`."""
    return f"output.{pipeline}.{stage}"


def engine_group(pipeline: str, run_id: str) -> str:
    """What the names of consumer groups, transactions and internal topics of a pipeline begin with:
    `engine.<pipeline>.<run_id>`."""
    return f"{ENGINE_PREFIX}{pipeline}.{run_id}"


def domain_topics(domain: DomainSpec, partitions: int = 1) -> tuple[Topic, ...]:
    """The input topics of a domain, in order."""
    return tuple(
        Topic(one.topic, (one.record,), partitions, 6 * HOUR_S, 4096 * MEBIBYTE)
        for one in domain.inputs
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
