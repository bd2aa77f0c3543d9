"""Stage 3, built-in: an aggregation over tumbling windows of event time."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.workload import REPORT_S

WINDOW_S = 1


def tumbling(flows: DataFrame, speeds: DataFrame, window_s: int = WINDOW_S) -> DataFrame:
    """Flows and speeds → rows of `output_tumbling`, each once the watermark has passed its end.

    window_s: length of the window in seconds of event time. lanes: those of which there were flows.
    """
    return per_window(flows, speeds, window_s).select(
        "run_id",
        "measurement_id",
        "window_start",
        "window_end",
        F.col("lanes").cast("int").alias("lanes"),
        F.col("flow").alias("accumulated_flow_vehicles_per_hour"),
        F.col("speed").alias("average_speed_km_per_hour"),
    )


def per_window(flows: DataFrame, speeds: DataFrame, window_s: int) -> DataFrame:
    """Sum of flow and mean of speed per site and tumbling window, with at least one of each.

    The column `window_time` carries the event time on to a further window.
    """
    return (
        flows.unionByName(speeds)
        .groupBy("run_id", "measurement_id", F.window("observed_at", f"{window_s} seconds"))
        .agg(
            _lanes(window_s).alias("lanes"),
            F.sum("flow_vehicles_per_hour").alias("flow"),
            F.avg("speed_km_per_hour").alias("speed"),
        )
        .where(F.col("flow").isNotNull() & F.col("speed").isNotNull())
        .select(
            "run_id",
            "measurement_id",
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            F.window_time("window").alias("window_time"),
            "lanes",
            "flow",
            "speed",
        )
    )


def _lanes(window_s: int) -> Column:
    """How many lanes sent a flow: as many as there are flows in the time in which each sends one,
    which is cheaper to count."""
    if window_s == REPORT_S:
        return F.count("flow_vehicles_per_hour")
    lane_of_flow = F.when(F.col("flow_vehicles_per_hour").isNotNull(), F.col("lane"))
    return F.size(F.collect_set(lane_of_flow))
