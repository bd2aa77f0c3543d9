"""Stage 2: flow and speed of one measurement id, lane and event time."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def join(observations: DataFrame) -> DataFrame:
    """Observations → rows of `output_join`, each once both kinds are there.

    An aggregation in place of a join of two streams, which real-time mode does not allow.
    """
    has_both = F.col("flow_vehicles_per_hour").isNotNull() & F.col("speed_km_per_hour").isNotNull()
    return (
        observations.groupBy("run_id", "measurement_id", "lane", "observed_at")
        .agg(
            F.max("num_lanes").alias("num_lanes"),
            F.max("flow_vehicles_per_hour").alias("flow_vehicles_per_hour"),
            F.max("speed_km_per_hour").alias("speed_km_per_hour"),
        )
        .where(has_both)
        .select(
            "run_id",
            "measurement_id",
            "lane",
            "num_lanes",
            "observed_at",
            "flow_vehicles_per_hour",
            "speed_km_per_hour",
        )
    )
