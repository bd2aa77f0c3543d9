"""Stage 2 with a state of its own."""

from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from services.spark_pipeline.stages.state.memory import Memory, Place
from services.spark_pipeline.stages.state.processor import with_memory

FIELDS = "lane string, num_lanes int, observed_ms bigint, flow int, speed double"


def join(observations: DataFrame, keep_s: int) -> DataFrame:
    """Observations → rows of `output_join`, each once both kinds are there."""
    return with_memory(observations, joined, FIELDS, keep_s).select(
        "run_id",
        "measurement_id",
        "lane",
        "num_lanes",
        F.timestamp_millis("observed_ms").alias("observed_at"),
        F.col("flow").alias("flow_vehicles_per_hour"),
        F.col("speed").alias("speed_km_per_hour"),
    )


def joined(memory: Memory, paired: list[Place]) -> Iterator[tuple[object, ...]]:
    """The new pairs, with the columns of FIELDS."""
    yield from (tuple(memory[place]) for place in paired)
