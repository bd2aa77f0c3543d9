"""Common query setup of all stages: source, output mode, trigger, checkpoint and sink."""

import json
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from schemas import catalogue
from schemas.engine import EnginePlan
from services.spark_pipeline.meters import group_prefix
from services.spark_pipeline.outputs import Source, outputs
from services.spark_pipeline.own import Own
from services.spark_pipeline.pipeline import SparkPipeline
from services.spark_pipeline.undecodable import topic_of
from services.spark_pipeline.watching import one_line

# Twice the default, which fills up in a backlog long before the broker accepts the batch; otherwise
# a batch is sent at once. With 64 KB parse gains a little more, and tumbling loses.
PRODUCER_BATCH_BYTES = 32 * 1024


@dataclass(frozen=True)
class Place:
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
    place: Place,
    own: Own,
) -> StreamingQuery:
    """Start the query of one stage, named after the stage: from its checkpoint if there is one,
    else from the plan's start offsets. own: the domain's own functions. Raises StageError."""
    prefix = group_prefix(plan.group, stage)
    read = partial(read_inputs, spark, pipeline, plan, place, group=prefix)
    source = Source(read, topic_of(plan.group), plan.wire_format, own)
    try:
        rows = outputs(source, plan.domain, stage, pipeline)
    except Exception as error:  # domain code may raise anything
        raise StageError(stage, one_line(str(error))) from error
    writer = (
        rows.writeStream.queryName(stage)
        .outputMode("append" if pipeline.closes_windows else "update")
        .option("checkpointLocation", f"{place.checkpoints}/{pipeline.name}/{stage}")
        .format("kafka")
        .option("kafka.batch.size", PRODUCER_BATCH_BYTES)
        .options(**place.kafka)
    )
    if "topic" not in rows.columns:
        writer = writer.option("topic", catalogue.output_topic(pipeline.name, stage))
    return triggered(writer, pipeline).start()


def read_inputs(
    spark: SparkSession,
    pipeline: SparkPipeline,
    plan: EnginePlan,
    place: Place,
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
    return reader.load()


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
