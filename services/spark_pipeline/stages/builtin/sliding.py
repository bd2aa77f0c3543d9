"""Stage 4, built-in: sliding windows over the tumbling windows of their parts, chained."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from services.spark_pipeline.stages.builtin.tumbling import per_window
from services.spark_pipeline.stages.parts import parts_of

WINDOW_S = 3
SLIDE_S = 1


def sliding(
    flows: DataFrame, speeds: DataFrame, window_s: int = WINDOW_S, slide_s: int = SLIDE_S
) -> DataFrame:
    """Flows and speeds → rows of `output_sliding`, each once the watermark has passed its end.

    A window consists of window_s / slide_s tumbling windows, at least 3. Published are windows
    whose newest part has something; a change against a part that has nothing is null. Raises
    ValueError when the window is not such a multiple.
    """
    window = F.window("window_time", f"{window_s} seconds", f"{slide_s} seconds")
    newest = parts_of(window_s, slide_s) - 1
    return (
        per_window(flows, speeds, slide_s)
        .withColumn("window", window)
        .withColumn("part", _part(slide_s))
        .groupBy("run_id", "measurement_id", "window")
        .agg(*(column for age in range(3) for column in _values_of(newest - age, age)))
        .where(F.col("flow_0").isNotNull())
        .select(
            "run_id",
            "measurement_id",
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            _change("flow", 1).alias("flow_change_short"),
            _change("flow", 2).alias("flow_change_long"),
            _change("speed", 1).alias("speed_change_short"),
            _change("speed", 2).alias("speed_change_long"),
        )
    )


def _part(slide_s: int) -> Column:
    """Number of the part of its window that a tumbling window is, from 0, oldest first."""
    into_window_us = F.unix_micros("window_start") - F.unix_micros("window.start")
    return F.floor(into_window_us / F.lit(slide_s * 1_000_000))


def _values_of(part: int, age: int) -> tuple[Column, ...]:
    """Flow and speed of one part, which has one row: its age is 0 for the newest."""
    in_part = F.col("part") == part
    return tuple(F.max(F.when(in_part, F.col(x))).alias(f"{x}_{age}") for x in ("flow", "speed"))


def _change(kind: str, age: int) -> Column:
    """(new - old) / old; null where old is 0, for which ANSI division would stop the query."""
    before = F.col(f"{kind}_{age}")
    return F.try_divide(F.col(f"{kind}_0") - before, before)
