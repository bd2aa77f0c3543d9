"""Stage 2, built-in: the inner join of both streams."""

from pyspark.sql import DataFrame

KEYS = ("run_id", "measurement_id", "lane", "observed_at")


def join(flows: DataFrame, speeds: DataFrame) -> DataFrame:
    """Flows and speeds → rows of `output_join`, one per pair of the same lane and event time.

    The event time is one of the equal columns: the tightest interval that a join can have, and
    what lets Spark forget a record once the watermark has passed its event time. A pair is
    published at once; a record that comes twice makes a pair more.
    """
    return (
        flows.select(*KEYS, "num_lanes", "flow_vehicles_per_hour")
        .join(speeds.select(*KEYS, "speed_km_per_hour"), list(KEYS), "inner")
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
