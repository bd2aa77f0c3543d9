"""Stage 3: one measurement id in one tumbling window, over all lanes."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from schemas.workload import REPORT_S

WINDOW_S = 1


def tumbling(observations: DataFrame, window_s: int = WINDOW_S) -> DataFrame:
    """Observations → rows of `output_tumbling`, each once every lane has sent both kinds.

    window_s: length of the window in seconds of event time, in each of which each lane reports.
    """
    due = F.col("num_lanes") * F.lit(window_s // REPORT_S)
    is_complete = (F.col("flows") == due) & (F.col("speeds") == due)
    return (
        observations.groupBy(
            "run_id", "measurement_id", F.window("observed_at", f"{window_s} seconds")
        )
        .agg(
            F.max("num_lanes").alias("num_lanes"),
            F.count("flow_vehicles_per_hour").alias("flows"),
            F.count("speed_km_per_hour").alias("speeds"),
            F.sum("flow_vehicles_per_hour").alias("accumulated_flow_vehicles_per_hour"),
            F.avg("speed_km_per_hour").alias("average_speed_km_per_hour"),
        )
        .where(is_complete)
        .select(
            "run_id",
            "measurement_id",
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            F.col("num_lanes").alias("lanes"),
            "accumulated_flow_vehicles_per_hour",
            "average_speed_km_per_hour",
        )
    )
