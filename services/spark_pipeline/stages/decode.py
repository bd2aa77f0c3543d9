"""decode: the records of the inputs as columns; and the outputs of a stage, read from its topic."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas import catalogue
from schemas.codec import BUS
from schemas.domain import RUN_ID, StageSpec
from services.spark_pipeline.stages.inputs import EVENT_TIME, INPUT, Inputs
from services.spark_pipeline.wire import (
    datum_of,
    decoded,
    decoded_json,
    fields_of,
    key_of,
    spark_type,
)

REASON = "The value is not a record of its topic."
_KAFKA = ("topic", "partition", "offset", "timestamp", "key", "value")


def records(
    raw: DataFrame, inputs: Inputs, wire_format: str = "avro", is_copied: bool = False
) -> DataFrame:
    """Rows of Kafka (topic, key, value) → one row per record, with all columns of the inputs that
    are read, INPUT and EVENT_TIME.

    The topic tells the input; of records that were copied into one topic, what they say.
    wire_format: `avro` or `json`. A value that is not a record of its topic gives no row.
    """
    attempts = _attempts(inputs, wire_format, is_copied)
    found = raw.select(F.col("topic").alias("kafka:topic"), *attempts)
    times = [F.col(_attempt(one.name))[one.event_time] for one in inputs.specs]
    columns = _merged(inputs) | {INPUT: _input(inputs, is_copied), EVENT_TIME: _coalesced(times)}
    rows = found.select(*(column.alias(name) for name, column in columns.items()))
    return rows.where(F.col(RUN_ID).isNotNull())


def published(raw: DataFrame, stage: StageSpec, inputs: Inputs) -> DataFrame:
    """Rows of Kafka from the output topic of a stage → its outputs as columns, with EVENT_TIME
    where the inputs call it differently."""
    found = raw.select(decoded(stage.record, inputs.domain.codec).alias("record"))
    rows = found.where(F.col("record")[RUN_ID].isNotNull()).select("record.*")
    names = dict.fromkeys(one.event_time for one in inputs.specs)
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
    run_id: str,
    producer: str,
    wire_format: str = "avro",
    is_copied: bool = False,
) -> DataFrame:
    """Rows of Kafka, with partition, offset and timestamp → (topic, key, value) to publish: every
    record as the stage's, and every value that is none as `dead_letter`.

    run_id: the run that was under way; producer: who refuses. The time of a dead letter is the
    LogAppendTime of the value it holds, so that a repetition is the same bytes.
    """
    dead_letter = F.struct(
        F.lit(run_id).alias("run_id"),
        F.col("kafka:timestamp").alias("time"),
        F.lit(producer).alias("producer"),
        *(F.col(f"kafka:{name}").alias(name) for name in ("topic", "partition", "offset")),
        F.lit(REASON).alias("reason"),
        *(F.col(f"kafka:{name}").alias(name) for name in ("key", "value")),
    )
    # Their own names are left to the columns of the domain.
    kafka = {name: F.col(name).alias(f"kafka:{name}") for name in _KAFKA}
    found = raw.select(*kafka.values(), *_attempts(inputs, wire_format, is_copied)).select(
        *(f"kafka:{name}" for name in _KAFKA),
        *(column.alias(name) for name, column in _merged(inputs).items()),
    )

    def either(record: Column, refusal: Column) -> Column:
        return F.when(F.col(RUN_ID).isNotNull(), record).otherwise(refusal)

    value = F.struct(*_projected(found, stage, inputs))
    return found.select(
        either(F.lit(output_topic), F.lit(catalogue.DEAD_LETTER)).alias("topic"),
        either(key_of(F.col(stage.key)), F.col("kafka:key")).alias("key"),
        either(
            datum_of(value, stage.record, inputs.domain.codec),
            datum_of(dead_letter, "dead_letter", BUS),
        ).alias("value"),
    )


def _attempts(inputs: Inputs, wire_format: str, is_copied: bool) -> list[Column]:
    """Per input, the struct of its record, null where the value is none."""
    decode = decoded_json if wire_format == "json" else decoded
    found = {one: decode(one.record, inputs.domain.codec) for one in inputs.specs}
    if len(found) > 1 and not is_copied:
        found = {one: F.when(F.col("topic") == one.topic, each) for one, each in found.items()}
    return [each.alias(_attempt(one.name)) for one, each in found.items()]


def _attempt(name: str) -> str:
    return f"record:{name}"


def _merged(inputs: Inputs) -> dict[str, Column]:
    """Every column that an input has, by name: of the input that the record is of."""
    found: dict[str, list[Column]] = {}
    for name in inputs.names:
        for column in inputs.fields(name):
            found.setdefault(column, []).append(F.col(_attempt(name))[column])
    return {name: _coalesced(each) for name, each in found.items()}


def _coalesced(columns: list[Column]) -> Column:
    return columns[0] if len(columns) == 1 else F.coalesce(*columns)


def _input(inputs: Inputs, is_copied: bool) -> Column:
    """The name of the input by its topic, or by what the record is."""
    first, *others = inputs.specs
    name = F.lit(first.name)
    for one in others:
        is_copy_of = F.col(_attempt(first.name)).isNull() & F.col(_attempt(one.name)).isNotNull()
        is_one = is_copy_of if is_copied else F.col("kafka:topic") == one.topic
        name = F.when(is_one, F.lit(one.name)).otherwise(name)
    return name


def _projected(rows: DataFrame, stage: StageSpec, inputs: Inputs) -> list[Column]:
    """The columns of the stage's record, null where no input has them."""
    known: Mapping[str, object] = dict.fromkeys(rows.columns)
    kinds = fields_of(stage.record, inputs.domain.codec)
    return [
        (F.col(name) if name in known else F.lit(None)).cast(spark_type(kind)).alias(name)
        for name, kind in kinds.items()
    ]
