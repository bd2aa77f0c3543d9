"""Stage 0: the raw bytes as they came."""

from pyspark.sql import DataFrame


def ingest(raw: DataFrame) -> DataFrame:
    """Rows of Kafka → (key, value), unchanged: what reading and writing alone cost."""
    return raw.select("key", "value")
