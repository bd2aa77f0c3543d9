"""Stage 1: the decoded observation of either kind."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas import catalogue
from services.spark_pipeline.wire import datum_of, decoded, decoded_json

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
FIELDS = (*SHARED_FIELDS, "flow_vehicles_per_hour", "speed_km_per_hour")
REASON = "The value is not a record of its topic."


def parse(raw: DataFrame, wire_format: str = "avro") -> DataFrame:
    """Rows of Kafka (topic, key, value) → one row per observation with the columns of
    `output_parse`.

    The topic tells the kind; wire_format: `avro` or `json`. A value that is not a record of its
    topic gives no row.
    """
    return (
        attempted(raw.select("topic", "value"), wire_format).where(_is_a_record()).select(*FIELDS)
    )


def parse_or_refuse(
    raw: DataFrame, output_topic: str, run_id: str, producer: str, wire_format: str = "avro"
) -> DataFrame:
    """Rows of Kafka, with partition, offset and timestamp → (topic, key, value) to publish: every
    observation as `output_parse`, and every value that is none as `dead_letter`.

    run_id: the run that was under way; producer: who refuses. The time of a dead letter is the
    LogAppendTime of the value it holds, so that a repetition is the same bytes.
    """
    dead_letter = F.struct(
        F.lit(run_id).alias("run_id"),
        F.col("timestamp").alias("time"),
        F.lit(producer).alias("producer"),
        "topic",
        "partition",
        "offset",
        F.lit(REASON).alias("reason"),
        "key",
        "value",
    )

    def either(record: Column, refusal: Column) -> Column:
        return F.when(_is_a_record(), record).otherwise(refusal)

    return attempted(raw, wire_format).select(
        either(F.lit(output_topic), F.lit(catalogue.DEAD_LETTER)).alias("topic"),
        either(F.col("measurement_id").cast("binary"), F.col("key")).alias("key"),
        either(
            datum_of(F.struct(*FIELDS), "output_parse"), datum_of(dead_letter, "dead_letter")
        ).alias("value"),
    )


def attempted(raw: DataFrame, wire_format: str) -> DataFrame:
    """Rows of Kafka with the fields of the observation beside them, null where there is none."""
    is_flow = F.col("topic") == catalogue.FLOW
    is_speed = F.col("topic") == catalogue.SPEED
    decode = decoded_json if wire_format == "json" else decoded
    return raw.select(
        *raw.columns,
        F.when(is_flow, decode("traffic_flow")).alias("flow"),
        F.when(is_speed, decode("traffic_speed")).alias("speed"),
    ).select(
        *raw.columns,
        *(F.coalesce(f"flow.{name}", f"speed.{name}").alias(name) for name in SHARED_FIELDS),
        "flow.flow_vehicles_per_hour",
        "speed.speed_km_per_hour",
    )


def _is_a_record() -> Column:
    return F.col("measurement_id").isNotNull()
