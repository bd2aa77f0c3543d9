"""Avro single-object encoding as Spark columns: what `schemas.codec` does for single records."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from schemas import codec


def decoded(record: str) -> Column:
    """The record as a struct, or null where `value` does not begin with that schema's header.

    A value whose datum does not decode gives a struct of nulls (PERMISSIVE): it never stops the
    query.
    """
    has_header = F.substring("value", 1, codec.HEADER_BYTES) == F.lit(codec.header(record))
    datum = F.expr(f"substring(value, {codec.HEADER_BYTES + 1})")
    return F.when(has_header, from_avro(datum, codec.schema_json(record), {"mode": "PERMISSIVE"}))


def encoded(rows: DataFrame, record: str) -> DataFrame:
    """Rows with the columns of a record → (key, value) as they go to Kafka.

    key: measurement_id. value: header and datum of the newest version of the record.
    """
    value = datum_of(F.struct(*rows.columns), record)
    return rows.select(F.col("measurement_id").cast("binary").alias("key"), value.alias("value"))


def datum_of(fields: Column, record: str) -> Column:
    """Header and datum of the newest version of a record, from a struct of its fields."""
    return F.concat(F.lit(codec.header(record)), to_avro(fields, codec.schema_json(record)))
