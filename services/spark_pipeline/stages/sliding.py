"""Stage 4: how flow and speed of one measurement id changed against the parts before."""

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.workload import REPORT_S
from services.spark_pipeline.stages.parts import parts_of

WINDOW_S = 3
SLIDE_S = 1


def sliding(observations: DataFrame, window_s: int = WINDOW_S, slide_s: int = SLIDE_S) -> DataFrame:
    """Observations → rows of `output_sliding`, each once every part of its window is complete.

    window_s, slide_s: length and slide of the window, seconds of event time. A window consists of
    window_s / slide_s parts, at least 3, and each lane reports both kinds in every second. The
    newest part is compared with the one before (short) and the one before that (long). Raises
    ValueError when the window is not such a multiple.
    """
    parts = parts_of(window_s, slide_s)
    window = F.window("observed_at", f"{window_s} seconds", f"{slide_s} seconds")
    newest = parts - 1
    return (
        observations.withColumn("window", window)
        .withColumn("part", _part(slide_s))
        .groupBy("run_id", "measurement_id", "window")
        .agg(*(column for part in range(parts) for column in _sums_of(part)))
        .where(reduce(and_, (_is_complete(part, slide_s) for part in range(parts))))
        .select(
            "run_id",
            "measurement_id",
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            _change("flow", newest, newest - 1).alias("flow_change_short"),
            _change("flow", newest, newest - 2).alias("flow_change_long"),
            _change("speed", newest, newest - 1).alias("speed_change_short"),
            _change("speed", newest, newest - 2).alias("speed_change_long"),
        )
    )


def _part(slide_s: int) -> Column:
    """Number of the part of its window that an observation belongs to, from 0, oldest first."""
    into_window_us = F.unix_micros("observed_at") - F.unix_micros("window.start")
    return F.floor(into_window_us / F.lit(slide_s * 1_000_000))


def _sums_of(part: int) -> tuple[Column, ...]:
    def in_part(name: str) -> Column:
        return F.when(F.col("part") == part, F.col(name))

    flow, speed = in_part("flow_vehicles_per_hour"), in_part("speed_km_per_hour")
    return (
        # Of the part, not of the window: a site may get or lose a lane.
        F.max(in_part("num_lanes")).alias(f"lanes_{part}"),
        F.count(flow).alias(f"flows_{part}"),
        F.count(speed).alias(f"speeds_{part}"),
        F.sum(flow).alias(f"flow_{part}"),
        F.avg(speed).alias(f"speed_{part}"),
    )


def _is_complete(part: int, slide_s: int) -> Column:
    due = F.col(f"lanes_{part}") * F.lit(slide_s // REPORT_S)
    return (F.col(f"flows_{part}") == due) & (F.col(f"speeds_{part}") == due)


def _change(kind: str, new: int, old: int) -> Column:
    """(new - old) / old; null where old is 0, for which ANSI division would stop the query."""
    before = F.col(f"{kind}_{old}")
    return F.try_divide(F.col(f"{kind}_{new}") - before, before)
