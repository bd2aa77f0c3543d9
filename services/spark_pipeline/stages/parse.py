"""Stage 1: the decoded observation of either kind."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from schemas import catalogue
from services.spark_pipeline.wire import decoded

SHARED_FIELDS = (
    "run_id",
    "sequence",
    "measurement_id",
    "lane",
    "num_lanes",
    "latitude",
    "longitude",
    "observed_at",
    "period_s",
    "accuracy_percent",
)


def parse(raw: DataFrame) -> DataFrame:
    """Rows of Kafka (topic, key, value) → one row per observation with the columns of
    `output_parse`.

    The topic tells the kind. A value that is not a record of its topic gives no row.
    """
    is_flow = F.col("topic") == catalogue.FLOW
    is_speed = F.col("topic") == catalogue.SPEED
    is_a_record = F.col("measurement_id").isNotNull()
    return (
        raw.select("topic", "value")
        .select(
            F.when(is_flow, decoded("traffic_flow")).alias("flow"),
            F.when(is_speed, decoded("traffic_speed")).alias("speed"),
        )
        .select(
            *(F.coalesce(f"flow.{name}", f"speed.{name}").alias(name) for name in SHARED_FIELDS),
            "flow.flow_vehicles_per_hour",
            "speed.speed_km_per_hour",
        )
        .where(is_a_record)
    )
