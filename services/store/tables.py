"""The table of each topic, and its columns.

Columns follow from the record's schema: the same names, Arrow types of the Avro types, times in
milliseconds UTC; then `_topic`, `_partition` and `_offset`. If a record is only a histogram, or a
list of pairs or samples, its arrays of equal length become one row per element (`explode`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from schemas import catalogue, codec

DATABASE = "tidegauge"
PLACE = (("_topic", pa.string()), ("_partition", pa.int32()), ("_offset", pa.int64()))
_TIME = pa.timestamp("ms", tz="UTC")
_TYPES = {
    "string": pa.string(),
    "bytes": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
}
_NO_EXPLODE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class RawTable:
    """One raw table.

    record: schema of the events. columns: Arrow schema of its rows. explode: maps an array field to
    the column of its elements. values and counts: array fields of equal length, the counts greater
    than 0. times: fields in epoch milliseconds. optional: exploded fields whose elements may be
    null; an empty one is null in every row.
    """

    name: str
    topic: str
    record: str
    columns: pa.Schema
    explode: Mapping[str, str]
    values: tuple[str, ...]
    counts: tuple[str, ...]
    times: tuple[str, ...]
    optional: frozenset[str] = frozenset()


def _arrow_type(avro: Any) -> pa.DataType:
    if isinstance(avro, list):
        return _arrow_type(next(branch for branch in avro if branch != "null"))
    if isinstance(avro, dict) and avro["type"] == "array":
        return pa.list_(_arrow_type(avro["items"]))
    if isinstance(avro, dict) and avro["type"] == "map":
        return pa.map_(pa.string(), _arrow_type(avro["values"]))
    if isinstance(avro, dict):
        return _TIME if avro.get("logicalType") == "timestamp-millis" else _arrow_type(avro["type"])
    return _TYPES[avro]


def _table(
    topic: str, record: str, values: tuple[str, ...], explode: Mapping[str, str] = _NO_EXPLODE
) -> RawTable:
    avro = json.loads(codec.schema_json(record))["fields"]
    fields = {field["name"]: _arrow_type(field["type"]) for field in avro}
    counts = ("counts",) if values else ()
    for name in counts:
        fields[name] = pa.list_(pa.uint64())
    columns = [
        (explode[name], kind.value_type) if name in explode else (name, kind)
        for name, kind in fields.items()
    ]
    times = tuple(name for name, kind in fields.items() if kind == _TIME)
    schema = pa.schema([*columns, *PLACE])
    nullable = {field["name"] for field in avro if _has_null_items(field["type"])}
    optional = frozenset(nullable & explode.keys())
    return RawTable(record, topic, record, schema, explode, values, counts, times, optional)


def _has_null_items(avro: Any) -> bool:
    return isinstance(avro, dict) and avro["type"] == "array" and "null" in avro["items"]


_VALUES = {
    catalogue.LATENCY: ("latencies_ms",),
    catalogue.GENERATOR: ("send_delays_us",),
    catalogue.SLICES: ("latencies_ms",),
}
_EXPLODE = {
    catalogue.LATENCY: {"latencies_ms": "latency_ms", "counts": "count"},
    catalogue.SLICES: {"latencies_ms": "latency_ms", "counts": "count"},
    catalogue.PAIRS: {
        "phases": "phase",
        "verdicts": "verdict",
        "partitions": "output_partition",
        "offsets": "output_offset",
        "appended_ms": "appended_ms",
        "latest_input_ms": "latest_input_ms",
        "mean_input_ms": "mean_input_ms",
        "scheduled_us": "scheduled_us",
        "visible_from_ms": "visible_from_ms",
        "handed_ms": "handed_ms",
    },
    catalogue.METRICS: {
        "names": "name",
        "labels": "labels",
        "kinds": "kind",
        "values": "value",
        "increases": "increase",
    },
}

TABLES: Mapping[str, RawTable] = MappingProxyType(
    {
        topic: _table(topic, record, _VALUES.get(topic, ()), _EXPLODE.get(topic, _NO_EXPLODE))
        for topic, record in (
            *((name, catalogue.record_of(name)) for name in catalogue.RESULTS),
            (catalogue.DEAD_LETTER, "dead_letter"),
        )
    }
)
POSITIONS = "projection_position"
POSITION_COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("next_offset", pa.int64()),
        ("time", _TIME),
    ]
)
