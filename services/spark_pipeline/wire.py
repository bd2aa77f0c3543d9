"""Wire formats as Spark columns; `schemas.codec` and `schemas.codec` do the same for single
records."""

import json
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas import codec
from schemas.codec import Records
from schemas.domain import StageSpec

# Spark type of each Avro type allowed in a record.
_TYPES = {
    "string": "string",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
}
_TIMES = ("timestamp-millis", "timestamp-micros")


def fields_of(record: str, records: Records) -> dict[str, Any]:
    """Avro types of the columns of a record's newest version, by name."""
    fields = json.loads(records.schema_json(record))["fields"]
    return {field["name"]: field["type"] for field in fields}


def spark_type(kind: Any) -> str:
    """Spark type of an Avro type; for a union with null, that of the other branch."""
    if isinstance(kind, list):
        (kind,) = (branch for branch in kind if branch != "null")
    if _logical_type(kind) in _TIMES:
        return "timestamp"
    return _TYPES[_plain(kind)]


def is_nullable(kind: Any) -> bool:
    """Whether an Avro type is a union with null."""
    return isinstance(kind, list) and "null" in kind


def decoded(record: str, records: Records) -> Column:
    """The record as a struct, or null if `value` does not begin with that schema's header.

    An invalid datum gives a struct of nulls (PERMISSIVE) and does not stop the query.
    """
    from pyspark.sql.avro.functions import from_avro

    has_header = F.substring("value", 1, codec.HEADER_BYTES) == F.lit(records.header(record))
    datum = F.expr(f"substring(value, {codec.HEADER_BYTES + 1})")
    schema = records.schema_json(record)
    return F.when(has_header, from_avro(datum, schema, {"mode": "PERMISSIVE"}))


def decoded_json(record: str, records: Records) -> Column:
    """The record as a struct, or null if `value` is not a JSON object with all its fields.

    Accepts integers for fractional fields, and ignores anything after the object.
    """
    kinds = fields_of(record, records)
    # Times are first read as integers.
    ddl = ", ".join(f"{name} {_TYPES[_plain(_branch(kind))]}" for name, kind in kinds.items())
    found = F.from_json(F.col("value").cast("string"), ddl, {"mode": "PERMISSIVE"})
    needed = [name for name, kind in kinds.items() if not is_nullable(kind)]
    is_whole = reduce(and_, (found.getField(name).isNotNull() for name in needed))
    for name, kind in kinds.items():
        unit = _logical_type(_branch(kind))
        if unit == "timestamp-millis":
            found = found.withField(name, F.timestamp_millis(found.getField(name)))
        elif unit == "timestamp-micros":
            found = found.withField(name, F.timestamp_micros(found.getField(name)))
    return F.when(is_whole, found)


def fitted(rows: DataFrame, record: str, records: Records) -> DataFrame:
    """Rows with exactly the columns of a record, in its order and with its types."""
    kinds = fields_of(record, records)
    return rows.select(
        *(F.col(name).cast(spark_type(kind)).alias(name) for name, kind in kinds.items())
    )


def encoded(rows: DataFrame, stage: StageSpec, records: Records) -> DataFrame:
    """Rows of a stage → (key, value) for Kafka.

    key: text of the stage's key column. value: header and datum of the newest version of the
    stage's record.
    """
    whole = fitted(rows, stage.record, records)
    value = datum_of(F.struct(*whole.columns), stage.record, records)
    return whole.select(key_of(F.col(stage.key)).alias("key"), value.alias("value"))


def key_of(column: Column) -> Column:
    """A column's text as Kafka record key."""
    return column.cast("string").cast("binary")


def datum_of(fields: Column, record: str, records: Records) -> Column:
    """Header and datum of the newest version of a record, from a struct of its fields."""
    from pyspark.sql.avro.functions import to_avro

    return F.concat(F.lit(records.header(record)), to_avro(fields, records.schema_json(record)))


def _branch(kind: Any) -> Any:
    return next(one for one in kind if one != "null") if isinstance(kind, list) else kind


def _plain(kind: Any) -> str:
    return str(kind["type"]) if isinstance(kind, dict) else str(kind)


def _logical_type(kind: Any) -> str:
    return str(kind.get("logicalType", "")) if isinstance(kind, dict) else ""
