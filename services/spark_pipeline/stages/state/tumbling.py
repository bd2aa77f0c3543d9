"""Stage 3 with a state of its own."""

from collections.abc import Iterator
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from schemas.workload import REPORT_S
from services.spark_pipeline.stages.state.memory import Memory, Place, complete_pairs
from services.spark_pipeline.stages.state.processor import with_memory

WINDOW_S = 1
FIELDS = "window_start_ms bigint, lanes int, flow bigint, speed double"


def tumbling(observations: DataFrame, keep_s: int, window_s: int = WINDOW_S) -> DataFrame:
    """Observations → rows of `output_tumbling`, each once every lane has sent both kinds.

    window_s: length of the window in seconds of event time, in each of which each lane reports.
    """
    published = partial(windows, window_ms=1000 * window_s)
    return with_memory(observations, published, FIELDS, max(keep_s, window_s)).select(
        "run_id",
        "measurement_id",
        F.timestamp_millis("window_start_ms").alias("window_start"),
        F.timestamp_millis(F.col("window_start_ms") + 1000 * window_s).alias("window_end"),
        "lanes",
        F.col("flow").alias("accumulated_flow_vehicles_per_hour"),
        F.col("speed").alias("average_speed_km_per_hour"),
    )


def windows(
    memory: Memory, paired: list[Place], window_ms: int
) -> Iterator[tuple[int, int, int, float]]:
    """The windows that the new pairs completed, with the columns of FIELDS."""
    for start_ms in sorted({time_ms - time_ms % window_ms for time_ms, _ in paired}):
        pairs = complete_pairs(memory, start_ms, window_ms)
        if pairs:
            speed = sum(each.speed for each in pairs) / len(pairs)
            lanes = len(pairs) * 1000 * REPORT_S // window_ms
            yield start_ms, lanes, sum(each.flow for each in pairs), speed
