"""The wire formats as Spark columns: what `schemas.codec` and `schemas.json_format` do for single
records."""

import json
from functools import reduce
from operator import and_

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


# Spark's type of each Avro type of the inputs; times are read as integers first.
_TYPES = {"string": "string", "int": "int", "long": "bigint", "double": "double"}


def decoded_json(record: str) -> Column:
    """The record as a struct, or null where `value` is not a JSON object with all its fields.

    Integers in place of fractions are taken, as is anything after the object.
    """
    fields = json.loads(codec.schema_json(record))["fields"]
    kinds = {field["name"]: field["type"] for field in fields}
    plain = {name: kind["type"] if isinstance(kind, dict) else kind for name, kind in kinds.items()}
    ddl = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in plain.items())
    found = F.from_json(F.col("value").cast("string"), ddl, {"mode": "PERMISSIVE"})
    is_whole = reduce(and_, (found.getField(name).isNotNull() for name in kinds))
    times = {name for name, kind in kinds.items() if _logical_type(kind) == "timestamp-millis"}
    for name in sorted(times):
        found = found.withField(name, F.timestamp_millis(found.getField(name)))
    return F.when(is_whole, found)


def _logical_type(kind: object) -> str:
    return str(kind.get("logicalType", "")) if isinstance(kind, dict) else ""


def encoded(rows: DataFrame, record: str) -> DataFrame:
    """Rows with the columns of a record → (key, value) as they go to Kafka.

    key: measurement_id. value: header and datum of the newest version of the record.
    """
    value = datum_of(F.struct(*rows.columns), record)
    return rows.select(F.col("measurement_id").cast("binary").alias("key"), value.alias("value"))


def datum_of(fields: Column, record: str) -> Column:
    """Header and datum of the newest version of a record, from a struct of its fields."""
    return F.concat(F.lit(codec.header(record)), to_avro(fields, codec.schema_json(record)))
