"""decode: input records as columns, and the outputs of a stage read back from its topic."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.domain import RUN_ID, StageSpec
from services.spark_pipeline.stages.inputs import EVENT_TIME, INPUT, Inputs
from services.spark_pipeline.wire import (
    datum_of,
    decoded,
    decoded_json,
    fields_of,
    key_of,
    line_of,
    spark_type,
)

_KAFKA = ("topic", "partition", "offset", "key", "value")


def records(
    raw: DataFrame, inputs: Inputs, wire_format: str = "avro", is_copied: bool = False
) -> DataFrame:
    """Kafka rows (topic, key, value) → one row per record, with all columns of the inputs, INPUT
    and EVENT_TIME.

    The topic determines the input; for records copied into one topic, their schema does.
    wire_format: `avro` or `json`. A value that is not a record of its topic gives no row.
    """
    attempts = _attempts(inputs, wire_format, is_copied)
    result = raw.select(F.col("topic").alias("kafka:topic"), *attempts)
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
    kafka = {name: F.col(name).alias(f"kafka:{name}") for name in _KAFKA}
    result = raw.select(*kafka.values(), *_attempts(inputs, wire_format, is_copied)).select(
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


def _attempts(inputs: Inputs, wire_format: str, is_copied: bool) -> list[Column]:
    """The decoded struct for each input, null if the value is not its record."""
    decode = decoded_json if wire_format == "json" else decoded
    result = {spec: decode(spec.record, inputs.domain.codec) for spec in inputs.specs}
    if len(result) > 1 and not is_copied:
        result = {item: F.when(F.col("topic") == item.topic, each) for item, each in result.items()}
    return [each.alias(_attempt(item.name)) for item, each in result.items()]


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
