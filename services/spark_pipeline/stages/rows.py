"""Stages of single rows.

decode: input records as columns, and the outputs of a stage read back from its topic.
filter and lookup: one row in, at most one row out.
copy: the raw bytes, unchanged.

`Inputs` are the column names of a stage's inputs in its rows.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import eq, ge, gt, le, lt, ne, or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.domain import RUN_ID, DomainSpec, InputSpec, StageSpec, Table
from services.spark_pipeline.wire import (
    datum_of,
    decoded,
    fields_of,
    is_nullable,
    key_of,
    line_of,
    parsed_json,
    spark_type,
    whole_json,
)

INPUT = "_input"  # input of a row, in rows of several inputs
EVENT_TIME = "_event_time"  # event time, if inputs name it differently
_KAFKA = ("topic", "partition", "offset", "key", "value")
_COMPARE = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne}
_FOUND = "_found"
ROWS_PER_BUCKET = 4


@dataclass(frozen=True)
class Inputs:
    """The inputs of a stage.

    Records of several inputs are rows of one DataFrame: columns with the same name are merged, and
    INPUT holds the input of a row.
    """

    domain: DomainSpec
    specs: tuple[InputSpec, ...]

    @classmethod
    def of(cls, domain: DomainSpec, stage: str) -> "Inputs":
        """The inputs of a stage of a domain."""
        return cls(domain, domain.inputs_of(stage))

    def only(self, spec: InputSpec) -> "Inputs":
        """One input alone, as one source reads it."""
        return Inputs(self.domain, (spec,))

    @property
    def names(self) -> tuple[str, ...]:
        """Names, in the domain's order."""
        return tuple(spec.name for spec in self.specs)

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics, in the same order."""
        return tuple(spec.topic for spec in self.specs)

    @property
    def event_time(self) -> str:
        """The event-time column of the rows."""
        columns = {spec.event_time for spec in self.specs}
        return self.specs[0].event_time if len(columns) == 1 else EVENT_TIME

    @property
    def joined_time(self) -> str:
        """The event-time column of a join's outputs: that of its first input."""
        return self.specs[0].event_time

    def fields(self, name: str) -> dict[str, object]:
        """Avro types of an input's columns, by name."""
        return fields_of(self.domain.input(name).record, self.domain.codec)

    def column(self, sources: Sequence[str]) -> Column:
        """The value of these sources in each row: `INPUT.COLUMN`, null in rows of other inputs, or
        a plain COLUMN. Raises ValueError if a row would have two values."""
        named: dict[str, list[str]] = {}
        for source in sources:
            if "." not in source:
                return F.col(source)
            name, column = source.split(".")
            named.setdefault(column, []).append(name)
        names = [name for each in named.values() for name in each]
        if len(names) > len(set(names)):
            raise ValueError(f"{', '.join(sources)}: an aggregate takes one column of each input")
        values = [self._shared(column, inputs) for column, inputs in named.items()]
        return values[0] if len(values) == 1 else F.coalesce(*values)

    def marker(self, name: str) -> Column:
        """A column that is non-null exactly in rows of an input."""
        column = self.own_column(name)
        return F.when(F.col(INPUT) == name, F.lit(1)) if column is None else F.col(column)

    def own_column(self, name: str) -> str | None:
        """A column that every record of this input has, and no other input."""
        for column, kind in self.fields(name).items():
            if not is_nullable(kind) and self._having(column) == [name]:
                return column
        return None

    def found_by(self, stage: StageSpec, name: str) -> str | None:
        """An aggregate of the stage that is non-null only if the input has a record in the
        group."""
        for aggregate in stage.aggregates:
            columns = [source.split(".") for source in aggregate.of]
            if aggregate.function not in ("count", "count_distinct") and all(
                len(parts) == 2
                and parts[0] == name
                and parts[1] in self.fields(name)
                and not is_nullable(self.fields(name)[parts[1]])
                for parts in columns
            ):
                return aggregate.column
        return None

    def _having(self, column: str) -> list[str]:
        """The inputs whose record has a column; all inputs if it comes from a lookup."""
        result = [name for name in self.names if column in self.fields(name)]
        return result or list(self.names)

    def _shared(self, column: str, inputs: list[str]) -> Column:
        if set(self._having(column)) <= set(inputs):
            return F.col(column)
        is_one = reduce(or_, (self.marker(name).isNotNull() for name in inputs))
        return F.when(is_one, F.col(column))


def records(
    raw: DataFrame, inputs: Inputs, wire_format: str = "avro", is_copied: bool = False
) -> DataFrame:
    """Kafka rows (topic, key, value) → one row per record, with all columns of the inputs, INPUT
    and EVENT_TIME.

    The topic determines the input; for records copied into one topic, their schema does.
    wire_format: `avro` or `json`. A value that is not a record of its topic gives no row.
    """
    kept = [F.col("topic").alias("kafka:topic")]
    result = _attempted(raw, kept, inputs, wire_format, is_copied)
    times = [F.col(_attempt(spec.name))[spec.event_time] for spec in inputs.specs]
    columns = _merged(inputs) | {INPUT: _input(inputs, is_copied), EVENT_TIME: _coalesced(times)}
    rows = result.select(*(column.alias(name) for name, column in columns.items()))
    return rows.where(F.col(RUN_ID).isNotNull())


def published(raw: DataFrame, stage: StageSpec, inputs: Inputs) -> DataFrame:
    """Kafka rows from the output topic of a stage → its outputs as columns, with EVENT_TIME if the
    inputs name it differently."""
    result = raw.select(decoded(stage.record, inputs.domain.codec).alias("record"))
    rows = result.where(F.col("record")[RUN_ID].isNotNull()).select("record.*")
    names = dict.fromkeys(spec.event_time for spec in inputs.specs)
    times = [F.col(name) for name in names if name in rows.columns]
    if inputs.event_time != EVENT_TIME or not times:
        return rows
    return rows.withColumn(EVENT_TIME, _coalesced(times))


def decode_or_refuse(
    raw: DataFrame,
    stage: StageSpec,
    inputs: Inputs,
    *,
    output_topic: str,
    undecodable_topic: str,
    wire_format: str = "avro",
    is_copied: bool = False,
) -> DataFrame:
    """Kafka rows, with partition and offset → (topic, key, value) to publish: records as the
    stage's output, undecodable values as lines for the driver."""
    refusal = line_of(*(F.col(f"kafka:{name}") for name in _KAFKA if name != "key"))
    # Renamed, because domain columns may have the same names.
    kafka = [F.col(name).alias(f"kafka:{name}") for name in _KAFKA]
    result = _attempted(raw, kafka, inputs, wire_format, is_copied).select(
        *(f"kafka:{name}" for name in _KAFKA),
        *(column.alias(name) for name, column in _merged(inputs).items()),
    )

    def either(record: Column, refusal: Column) -> Column:
        return F.when(F.col(RUN_ID).isNotNull(), record).otherwise(refusal)

    value = F.struct(*_projected(result, stage, inputs))
    return result.select(
        either(F.lit(output_topic), F.lit(undecodable_topic)).alias("topic"),
        either(key_of(F.col(stage.key)), F.col("kafka:key")).alias("key"),
        either(datum_of(value, stage.record, inputs.domain.codec), refusal).alias("value"),
    )


def _attempted(
    raw: DataFrame, kept: list[Column], inputs: Inputs, wire_format: str, is_copied: bool
) -> DataFrame:
    """Kafka rows → the kept columns, and a decoded struct for each input, null if the value is not
    its record."""
    codec, is_json = inputs.domain.codec, wire_format == "json"
    attempts = {}
    for each in inputs.specs:
        attempt = (parsed_json if is_json else decoded)(each.record, codec)
        if len(inputs.specs) > 1 and not is_copied:
            attempt = F.when(F.col("topic") == each.topic, attempt)
        attempts[_attempt(each.name)] = attempt
    result = raw.select(*kept, *(value.alias(name) for name, value in attempts.items()))
    if not is_json:
        return result
    whole = {
        _attempt(each.name): whole_json(F.col(_attempt(each.name)), each.record, codec)
        for each in inputs.specs
    }
    return result.withColumns(whole)


def _attempt(name: str) -> str:
    return f"record:{name}"


def _merged(inputs: Inputs) -> dict[str, Column]:
    """Columns of all inputs by name, with the value from the input of the record."""
    result: dict[str, list[Column]] = {}
    for name in inputs.names:
        for column in inputs.fields(name):
            result.setdefault(column, []).append(F.col(_attempt(name))[column])
    return {name: _coalesced(each) for name, each in result.items()}


def _coalesced(columns: list[Column]) -> Column:
    return columns[0] if len(columns) == 1 else F.coalesce(*columns)


def _input(inputs: Inputs, is_copied: bool) -> Column:
    """The name of the input, by its topic or by the record's schema."""
    first, *others = inputs.specs
    name = F.lit(first.name)
    for other in others:
        is_copy_of = F.col(_attempt(first.name)).isNull() & F.col(_attempt(other.name)).isNotNull()
        is_one = is_copy_of if is_copied else F.col("kafka:topic") == other.topic
        name = F.when(is_one, F.lit(other.name)).otherwise(name)
    return name


def _projected(rows: DataFrame, stage: StageSpec, inputs: Inputs) -> list[Column]:
    """The columns of the stage's record, null if no input has them."""
    known: Mapping[str, object] = dict.fromkeys(rows.columns)
    kinds = fields_of(stage.record, inputs.domain.codec)
    return [
        (F.col(name) if name in known else F.lit(None)).cast(spark_type(kind)).alias(name)
        for name, kind in kinds.items()
    ]


def filtered(rows: DataFrame, stage: StageSpec) -> DataFrame:
    """Rows that satisfy all conditions."""
    for each in stage.where:
        rows = rows.where(_COMPARE[each.operator](F.col(each.column), F.lit(each.value)))
    return rows


def looked_up(rows: DataFrame, stage: StageSpec) -> DataFrame:
    """Rows with the columns of the table; rows without an entry are dropped.

    The table is a constant of the plan and not a second source, so that a lookup works wherever a
    projection does, including continuous and real-time mode.
    """
    assert stage.table is not None
    table = stage.table
    result = rows.withColumn(_FOUND, entry_of(F.col(table.key), table))
    result = result.where(F.col(_FOUND).isNotNull())
    return result.withColumns(
        {name: F.col(_FOUND)[f"c{number}"] for number, name in enumerate(table.columns)}
    ).drop(_FOUND)


def entry_of(key: Column, table: Table) -> Column:
    """A struct (c0, c1, …) of the table row with this key, or null.

    Spark searches maps linearly, so entries are distributed over small maps by a checksum.
    """
    count = max(1, len(table.rows) // ROWS_PER_BUCKET)
    buckets: list[dict[str, dict[str, float | str]]] = [{} for _ in range(count)]
    for name, row in table.rows.items():
        values = {f"c{number}": value for number, value in enumerate(row)}
        buckets[zlib.crc32(name.encode()) % count][name] = values
    # One JSON text, which the optimizer folds into a constant: a literal per entry would need
    # thousands of calls to the JVM.
    types = ", ".join(f"c{number}: {kind}" for number, kind in enumerate(_types(table)))
    constant = F.from_json(F.lit(json.dumps(buckets)), f"array<map<string, struct<{types}>>>")
    text = key.cast("string")
    return constant[F.crc32(text.cast("binary")) % count][text]


def _types(table: Table) -> list[str]:
    columns = list(zip(*table.rows.values(), strict=True)) or [()] * len(table.columns)
    return [
        "string" if any(isinstance(value, str) for value in column) else "double"
        for column in columns
    ]


def copy(raw: DataFrame) -> DataFrame:
    """Kafka rows → (key, value), unchanged: measures the cost of reading and writing alone."""
    return raw.select("key", "value")
