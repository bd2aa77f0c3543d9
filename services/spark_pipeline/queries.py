"""Common query setup of all stages: source, output mode, trigger, checkpoint and sink.

The driver watches its queries: when they are ready, and when one has ended.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from schemas import catalogue
from schemas.engine import EnginePlan
from services.spark_pipeline.faulty_record import NO_FAULT
from services.spark_pipeline.outputs import Own, StageSource, outputs
from services.spark_pipeline.progress import group_prefix
from services.spark_pipeline.settings import SparkPipeline
from services.spark_pipeline.wire import topic_of

WATCH_INTERVAL_S = 0.5
INITIALISED = (
    "Processing",
    "Waiting",
    "Running",
)  # prefixes of the status of a query that reads its sources
WAITING = "Waiting"  # for data or for the next trigger: no batch is running
REASON_CHARACTERS = 600
# How Spark's log says that it stops the SparkContext. The queries then fail with an error that
# hides the cause (SPARK-59242).
STOPPING = (
    "uncaught error in thread",
    "Uncaught exception in thread",
    "shutting down SparkContext",
    "stopping SparkContext",
    "Exit as unable to send heartbeats",
)
MESSAGE_ENDS = ("at ", "===", "JVM stacktrace", "Driver stacktrace")


@dataclass(frozen=True)
class Failure:
    """A query that ended without being stopped."""

    stage: str
    reason: str


def watch(
    queries: list[StreamingQuery],
    stop: threading.Event,
    say_ready: Callable[[], None],
    report: Callable[[], None],
    *,
    has_workers: bool = False,
) -> Failure | None:
    """Call `say_ready` once every query reads its sources, and `report` at every poll. has_workers:
    a query starts Python workers in its first batch, and is not ready before they answer.

    Returns None when `stop` is set, or the first failure.
    """
    waiting_for = list(queries)
    while not stop.wait(WATCH_INTERVAL_S):
        report()
        ended = next((query for query in queries if not query.isActive), None)
        if ended is not None:
            return Failure(ended.name or "", reason_of(ended.exception()))
        if waiting_for:
            waiting_for = [query for query in waiting_for if not is_ready(query, has_workers)]
            if not waiting_for:
                say_ready()
    return None


def is_ready(query: StreamingQuery, has_workers: bool = False) -> bool:
    """Whether a query reads its sources and its Python workers, if it has any, have answered."""
    if not is_initialised(query.status):
        return False
    processes = not str(query.status["message"]).startswith(WAITING)
    return not has_workers or not processes or query.lastProgress is not None


def is_initialised(status: dict[str, Any] | None) -> bool:
    """Whether a query with this status has its offsets and is processing or waiting for data."""
    return status is not None and str(status["message"]).startswith(INITIALISED)


def reason_of(error: StreamingQueryException | None) -> str:
    """Why a query ended, in one line."""
    if error is None:
        return "the query ended without an exception"
    return one_line(str(error))


def cause_of_stop(log: str) -> str:
    """Why Spark stopped its SparkContext, from the driver's log: the first message that says so and
    its exception."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        _, is_error, message = line.partition(" ERROR ")
        if is_error and any(words in message for words in STOPPING):
            following = lines[number + 1 : number + 2]
            exception = [each for each in following if not each[:1].isdigit()]
            return one_line("\n".join([message.partition(": ")[2], *exception]))
    return "its log does not say why"


def one_line(text: str) -> str:
    """An engine's message in one line of at most 600 characters, without stack trace and plan."""
    lines = (line.strip() for line in text.splitlines())
    message = takewhile(lambda line: not line.startswith(MESSAGE_ENDS), filter(None, lines))
    return " ".join(message)[:REASON_CHARACTERS]


@dataclass(frozen=True)
class Locations:
    """Where a pipeline reads and writes (options of Kafka sources and sinks), and its checkpoint
    location (a path or URI)."""

    kafka: dict[str, str]
    checkpoints: str


class StageError(Exception):
    """A stage cannot be started; the text gives the reason."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(reason)
        self.stage = stage


def start_query(
    spark: SparkSession,
    pipeline: SparkPipeline,
    stage: str,
    *,
    plan: EnginePlan,
    place: Locations,
    own: Own,
) -> StreamingQuery:
    """Start the query of one stage, named after the stage: from its checkpoint if there is one,
    else from the plan's start offsets. own: the domain's own functions. Raises StageError."""
    prefix = group_prefix(plan.group, stage)
    read = partial(read_inputs, spark, pipeline, plan, place, group=prefix)
    source = StageSource(read, topic_of(plan.group), plan.wire_format, own)
    try:
        rows = outputs(source, plan.domain, stage, pipeline)
    except Exception as error:  # domain code may raise anything
        raise StageError(stage, one_line(str(error))) from error
    writer = (
        rows.writeStream.queryName(stage)
        .outputMode("append" if pipeline.closes_windows else "update")
        .option("checkpointLocation", f"{place.checkpoints}/{pipeline.name}/{stage}")
        .format("kafka")
        .options(**pipeline.producer, **place.kafka)
    )
    if "topic" not in rows.columns:
        writer = writer.option("topic", catalogue.output_topic(pipeline.name, stage))
    return triggered(writer, pipeline).start()


def read_inputs(
    spark: SparkSession,
    pipeline: SparkPipeline,
    plan: EnginePlan,
    place: Locations,
    topics: tuple[str, ...],
    *,
    group: str,
) -> DataFrame:
    """Topics as one source, from the start offsets on. group: prefix of its consumer group ids."""
    reader = (
        spark.readStream.format("kafka")
        .options(**place.kafka)
        .option("groupIdPrefix", group)
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", starting_offsets(plan, topics))
    )
    if pipeline.mode == "micro-batch":
        reader = reader.option("maxOffsetsPerTrigger", pipeline.max_records_per_batch)
    rows = reader.load()
    return rows.where(NO_FAULT) if plan.raise_file else rows


def starting_offsets(plan: EnginePlan, topics: tuple[str, ...]) -> str:
    """The `startingOffsets` option: start offset by topic and partition, as JSON."""
    offsets = plan.start_offsets | plan.output_offsets
    return json.dumps(
        {
            topic: {str(number): offset for number, offset in enumerate(offsets[topic])}
            for topic in topics
        }
    )


def triggered(writer: DataStreamWriter, pipeline: SparkPipeline) -> DataStreamWriter:
    """The trigger of the pipeline's mode."""
    if pipeline.mode == "real-time":
        return writer.trigger(realTime=f"{pipeline.batch_duration_s} seconds")
    if pipeline.mode == "continuous":
        return writer.trigger(continuous=f"{pipeline.checkpoint_interval_ms} milliseconds")
    return writer.trigger(processingTime=f"{pipeline.trigger_interval_ms} milliseconds")
