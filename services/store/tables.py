"""The table of each topic: its columns and its DDL.

Columns follow from the record's schema: the same names, types of the Avro types, times in
milliseconds UTC, comments; then `_topic`, `_partition` and `_offset`, which identify the Kafka
record of a row. If a record is only a histogram, or a list of pairs or samples, its arrays of equal
length become one row per element (`Element`). A histogram with other counts, which must not be
repeated, keeps its arrays (`results_generator`).

The store resumes after the greatest offset of a table, which its projection `resume` returns
without a scan. Old data is dropped in whole parts of a month.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa

from schemas import catalogue, codec

DATABASE: Final = "tidegauge"
PLACE: Final = (("_topic", pa.string()), ("_partition", pa.int32()), ("_offset", pa.int64()))
_TIME: Final = pa.timestamp("ms", tz="UTC")
_TYPES: Final = {
    "string": pa.string(),
    "bytes": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
}
_SQL_TYPES: Final = {
    pa.string(): "String",
    pa.binary(): "String",
    pa.bool_(): "Bool",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
    pa.uint64(): "UInt64",
    pa.float64(): "Float64",
    _TIME: "DateTime64(3, 'UTC')",
}
_TEXTS: Final = ("detail", "reason")  # strings of which few are equal
_COUNTS: Final = "counts"
# Numbers that rise with the rows, such as times.
_RISING: Final = (
    "offset",
    "output_offset",
    "appended_ms",
    "latest_input_ms",
    "scheduled_us",
    "_offset",
)
_PLACE_COMMENTS: Final = {
    "_topic": "Kafka topic the row was projected from",
    "_partition": "Kafka partition",
    "_offset": "Kafka offset; all rows of one record arrive in one insert",
}
_RESUME: Final = (
    "PROJECTION resume (SELECT _topic, _partition, max(_offset) GROUP BY _topic, _partition)"
)


class Element(NamedTuple):
    """The column of the elements of an array field. comment: if the field's own is not that of an
    element."""

    column: str
    comment: str = ""


@dataclass(frozen=True)
class _Topic:
    """What the schema of a record does not say. order: of the rows. comment: of the table, if the
    record's own is not that of its rows. values: array fields with how often each value occurred.
    elements: of array fields. index: SQL of a skipping index."""

    order: tuple[str, ...]
    comment: str = ""
    values: tuple[str, ...] = ()
    elements: Mapping[str, Element] = field(default_factory=dict)
    index: str = ""


@dataclass(frozen=True)
class RawTable:
    """One raw table.

    record: schema of the events. columns: Arrow schema of its rows. explode: maps an array field to
    the column of its elements. values and counts: array fields of equal length, the counts greater
    than 0. times: fields in epoch milliseconds. optional: exploded fields whose elements may be
    null; an empty one is null in every row. ddl: statements that create it, and add the columns
    that later versions of the record have.
    """

    name: str
    topic: str
    record: str
    columns: pa.Schema
    explode: Mapping[str, str]
    values: tuple[str, ...]
    counts: tuple[str, ...]
    times: tuple[str, ...]
    optional: frozenset[str]
    ddl: tuple[str, ...]


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


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"Array({_sql_type(kind.value_type)})"
    if pa.types.is_map(kind):
        return f"Map(LowCardinality(String), {_sql_type(kind.item_type)})"
    return _SQL_TYPES[kind]


def _column(name: str, kind: pa.DataType, is_nullable: bool, comment: str) -> str:
    """The definition of a column in DDL."""
    sql, encoding = _sql_type(kind), "ZSTD(1)"
    if kind == pa.string() and name not in _TEXTS:
        sql = f"LowCardinality({sql})"
    elif sql.endswith(("String", "(String)")):
        encoding = "ZSTD(3)"
    elif name in _RISING or (kind == _TIME and not is_nullable):
        encoding = "Delta(8), ZSTD(1)"
    elif kind in (pa.int64(), pa.uint64()):
        encoding = "T64, ZSTD(1)"
    sql = f"Nullable({sql})" if is_nullable else sql
    return f"`{name}` {sql} COMMENT {_quoted(comment)} CODEC({encoding})"


def _quoted(text: str) -> str:
    return "'{}'".format(text.removesuffix(".").replace("\\", "\\\\").replace("'", "''"))


def _ddl(
    record: str, topic: _Topic, schema: pa.Schema, nullable: set[str], explode: Mapping[str, str]
) -> Iterator[str]:
    """The statements of a table. nullable: its columns that may be null."""
    oldest, *later = (json.loads(each.text) for each in codec.BUS.versions(record))
    newest = later[-1] if later else oldest
    comments = {explode.get(each["name"], each["name"]): each["doc"] for each in newest["fields"]}
    comments |= {each.column: each.comment for each in topic.elements.values() if each.comment}
    comments |= _PLACE_COMMENTS
    columns = {
        each.name: _column(each.name, each.type, each.name in nullable, comments[each.name])
        for each in schema
    }
    parts = [*columns.values(), *([f"INDEX {topic.index}"] if topic.index else []), _RESUME]
    contents = ",\n    ".join(parts)
    order = ", ".join(f"`{name}`" for name in topic.order)
    yield f"""CREATE TABLE IF NOT EXISTS {DATABASE}.{record}
(
    {contents}
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(`time`)
ORDER BY ({order})
COMMENT {_quoted(topic.comment or newest["doc"])}"""
    first = {explode.get(each["name"], each["name"]) for each in oldest["fields"]}
    for before, name in pairwise(columns):
        if name not in first | {*_PLACE_COMMENTS}:
            yield (
                f"ALTER TABLE {DATABASE}.{record} ADD COLUMN IF NOT EXISTS {columns[name]} "
                f"AFTER `{before}`"
            )


def _table(name: str, record: str, topic: _Topic) -> RawTable:
    avro = {each["name"]: each["type"] for each in json.loads(codec.schema_json(record))["fields"]}
    fields = {each: _arrow_type(kind) for each, kind in avro.items()}
    counts = (_COUNTS,) if topic.values else ()
    for each in counts:
        fields[each] = pa.list_(pa.uint64())
    explode = {array: element.column for array, element in topic.elements.items()}
    columns = [
        (explode[each], kind.value_type) if each in explode else (each, kind)
        for each, kind in fields.items()
    ]
    schema = pa.schema([*columns, *PLACE])
    optional = frozenset(each for each in explode if "null" in avro[each]["items"])
    nullable = {each for each, kind in avro.items() if isinstance(kind, list)}
    nullable |= {explode[each] for each in optional}
    return RawTable(
        name=record,
        topic=name,
        record=record,
        columns=schema,
        explode=explode,
        values=topic.values,
        counts=counts,
        times=tuple(each for each, kind in fields.items() if kind == _TIME),
        optional=optional,
        ddl=tuple(_ddl(record, topic, schema, nullable, explode)),
    )


_HISTOGRAM: Final = {
    "latencies_ms": Element("latency_ms", "Latency, milliseconds; may be negative"),
    "counts": Element("count", "How many outputs had it"),
}
_AS_THEY_COME: Final = ("run_id", "time", "_partition", "_offset")
_TOPICS: Final[Mapping[str, _Topic]] = {
    catalogue.LIFECYCLE: _Topic(_AS_THEY_COME),
    catalogue.LATENCY: _Topic(
        ("run_id", "pipeline", "stage", "definition", "second", "latency_ms"),
        "Exact count of every millisecond of latency per second of output time, one row per value. "
        "Counts add up",
        ("latencies_ms",),
        _HISTOGRAM,
        "second_range second TYPE minmax GRANULARITY 1",
    ),
    catalogue.THROUGHPUT: _Topic(("run_id", "pipeline", "stage", "topic", "second")),
    catalogue.VERDICTS: _Topic(("run_id", "pipeline", "stage", "phase", "second")),
    catalogue.GENERATOR: _Topic(("run_id", "phase", "second"), values=("send_delays_us",)),
    catalogue.PIPELINE: _Topic(("run_id", "pipeline", "stage", "time")),
    catalogue.RESOURCES: _Topic(("run_id", "service", "pipeline", "time")),
    catalogue.CONCLUSIONS: _Topic(_AS_THEY_COME),
    catalogue.PAIRS: _Topic(
        ("run_id", "pipeline", "stage", "appended_ms"),
        "One row per output with the times of the inputs that made it, where the workload "
        "publishes pairs",
        elements={
            "phases": Element("phase"),
            "verdicts": Element("verdict"),
            "partitions": Element("output_partition"),
            "offsets": Element("output_offset"),
            "appended_ms": Element("appended_ms"),
            "latest_input_ms": Element("latest_input_ms"),
            "mean_input_ms": Element("mean_input_ms"),
            "scheduled_us": Element("scheduled_us"),
            "visible_from_ms": Element(
                "visible_from_ms",
                "From when consumers of committed records may have it, milliseconds since 1970 "
                "UTC; NULL if unknown, as without transactions",
            ),
            "handed_ms": Element(
                "handed_ms",
                "When the pipeline had been handed all contributing inputs, milliseconds since "
                "1970 UTC, by the clock of its proxy; NULL if unknown",
            ),
        },
    ),
    catalogue.METRICS: _Topic(  # queries never read all series of a time
        ("name", "source", "time"),
        "One row per sample of a Prometheus series",
        elements={
            "names": Element("name", "Metric name, as Prometheus has it"),
            "labels": Element("labels", "Its labels"),
            "kinds": Element("kind", "counter, gauge or untyped"),
            "values": Element("value", "Its value; a counter grows until its target starts again"),
            "increases": Element(
                "increase",
                "By how much a counter grew in the interval, never negative; NULL if it is not a "
                "counter, or if the previous answer did not have it",
            ),
        },
    ),
    catalogue.SLICES: _Topic(
        ("run_id", "pipeline", "stage", "dimension", "value", "minute", "latency_ms"),
        values=("latencies_ms",),
        elements=_HISTOGRAM,
    ),
    catalogue.FETCHES: _Topic(("run_id", "pipeline", "topic", "partition", "until")),
    catalogue.DEAD_LETTER: _Topic(
        ("topic", "partition", "offset", "time"), "Records that could not be used, kept whole"
    ),
}

TABLES: Mapping[str, RawTable] = MappingProxyType(
    {
        topic: _table(topic, record, _TOPICS[topic])
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
