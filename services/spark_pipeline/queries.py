"""How every stage runs: source, watermark, output mode, trigger, checkpoint and sink, once."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from schemas import catalogue
from schemas.pipeline import Pipeline
from schemas.protocol import RunPlan
from services.spark_pipeline.stages.ingest import ingest
from services.spark_pipeline.stages.join import join
from services.spark_pipeline.stages.parse import parse
from services.spark_pipeline.stages.sliding import sliding
from services.spark_pipeline.stages.tumbling import tumbling
from services.spark_pipeline.wire import encoded

ON_OBSERVATIONS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "join": join,
    "tumbling": tumbling,
    "sliding": sliding,
}


@dataclass(frozen=True)
class Place:
    """Where a pipeline reads, writes and keeps its checkpoints."""

    bootstrap: str
    checkpoints: Path


def outputs(raw: DataFrame, stage: str, watermark_s: int) -> DataFrame:
    """Rows of Kafka → (key, value) that the stage publishes, all the way from the input."""
    if stage == "ingest":
        return raw.transform(ingest)
    observations = raw.transform(parse)
    if stage == "parse":
        return encoded(observations, "output_parse")
    rows = observations.withWatermark("observed_at", f"{watermark_s} seconds").transform(
        ON_OBSERVATIONS[stage]
    )
    return encoded(rows, f"output_{stage}")


def start_query(
    spark: SparkSession, pipeline: Pipeline, stage: str, plan: RunPlan, place: Place
) -> StreamingQuery:
    """Start one stage from the plan's start offsets, named after the stage."""
    rows = outputs(read_inputs(spark, plan, place), stage, pipeline.watermark_s)
    writer = (
        rows.writeStream.queryName(stage)
        .outputMode("update")
        .option("checkpointLocation", str(place.checkpoints / pipeline.name / stage))
        .format("kafka")
        .option("kafka.bootstrap.servers", place.bootstrap)
        .option("topic", catalogue.output_topic(pipeline.name, stage))
    )
    return triggered(writer, pipeline).start()


def read_inputs(spark: SparkSession, plan: RunPlan, place: Place) -> DataFrame:
    """Both input topics as one source, from the start offsets on."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", place.bootstrap)
        .option("subscribe", ",".join(catalogue.INPUTS))
        .option("startingOffsets", starting_offsets(plan))
        .load()
    )


def starting_offsets(plan: RunPlan) -> str:
    """The `startingOffsets` option: first offset by input topic and partition, as JSON."""
    return json.dumps(
        {
            topic: {str(number): offset for number, offset in enumerate(plan.start_offsets[topic])}
            for topic in catalogue.INPUTS
        }
    )


def triggered(writer: DataStreamWriter, pipeline: Pipeline) -> DataStreamWriter:
    """The trigger of the pipeline's mode."""
    if pipeline.mode == "real-time":
        return writer.trigger(realTime=f"{pipeline.batch_duration_s} seconds")
    return writer.trigger(processingTime=f"{pipeline.trigger_interval_ms} milliseconds")
