"""Wire formats as Spark columns; `schemas.codec` does the same for single records.

Undecodable values are set aside: the queries write them to a topic of the pipeline, and the driver
passes them to the runner, because a pipeline must not write dead letters (decision 708).
"""

import json
from contextlib import suppress
from functools import reduce
from operator import and_
from typing import Any

from confluent_kafka import OFFSET_STORED, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pydantic import ValidationError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas import codec
from schemas.codec import RecordSchemas
from schemas.domain import StageSpec
from schemas.engine import VALUE_BYTES, EnginePlan, UndecodableLine
from services.runtime.program import Voice

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
MOST_AT_ONCE = 10_000
KAFKA_TIMEOUT_S = 15
TOPIC_CONFIG = {"retention.bytes": str(64 * 1024**2), "segment.bytes": str(16 * 1024**2)}


def fields_of(record: str, records: RecordSchemas) -> dict[str, Any]:
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


def decoded(record: str, records: RecordSchemas) -> Column:
    """The record as a struct, or null if `value` does not begin with that schema's header.

    An invalid datum gives a struct of nulls (PERMISSIVE) and does not stop the query.
    """
    from pyspark.sql.avro.functions import from_avro

    has_header = F.substring("value", 1, codec.HEADER_BYTES) == F.lit(records.header(record))
    datum = F.expr(f"substring(value, {codec.HEADER_BYTES + 1})")
    schema = records.schema_json(record)
    return F.when(has_header, from_avro(datum, schema, {"mode": "PERMISSIVE"}))


def parsed_json(record: str, records: RecordSchemas) -> Column:
    """`value` as a struct of the record's columns, for `whole_json`; times are integers. What is
    missing, or has another type, is null."""
    kinds = fields_of(record, records)
    ddl = ", ".join(f"{name} {_TYPES[_plain(_branch(kind))]}" for name, kind in kinds.items())
    return F.from_json(F.col("value").cast("string"), ddl, {"mode": "PERMISSIVE"})


def whole_json(parsed: Column, record: str, records: RecordSchemas) -> Column:
    """The record as a struct, or null if `value` is not a JSON object with all its fields.

    parsed: a column that contains the result of `parsed_json`. Spark would parse the text once for
    each use of an expression, of which there are more than fields. Accepts integers for fractional
    fields, and ignores anything after the object.
    """
    kinds = fields_of(record, records)
    needed = [name for name, kind in kinds.items() if not is_nullable(kind)]
    is_whole = reduce(and_, (parsed.getField(name).isNotNull() for name in needed))
    result = parsed
    for name, kind in kinds.items():
        unit = _logical_type(_branch(kind))
        if unit == "timestamp-millis":
            result = result.withField(name, F.timestamp_millis(parsed.getField(name)))
        elif unit == "timestamp-micros":
            result = result.withField(name, F.timestamp_micros(parsed.getField(name)))
    return F.when(is_whole, result)


def fitted(rows: DataFrame, record: str, records: RecordSchemas) -> DataFrame:
    """Rows with exactly the columns of a record, in its order and with its types."""
    kinds = fields_of(record, records)
    return rows.select(
        *(F.col(name).cast(spark_type(kind)).alias(name) for name, kind in kinds.items())
    )


def encoded(rows: DataFrame, stage: StageSpec, records: RecordSchemas) -> DataFrame:
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


def datum_of(fields: Column, record: str, records: RecordSchemas) -> Column:
    """Header and datum of the newest version of a record, from a struct of its fields."""
    from pyspark.sql.avro.functions import to_avro

    return F.concat(F.lit(records.header(record)), to_avro(fields, records.schema_json(record)))


def _branch(kind: Any) -> Any:
    return next(each for each in kind if each != "null") if isinstance(kind, list) else kind


def _plain(kind: Any) -> str:
    return str(kind["type"]) if isinstance(kind, dict) else str(kind)


def _logical_type(kind: Any) -> str:
    return str(kind.get("logicalType", "")) if isinstance(kind, dict) else ""


def topic_of(group: str) -> str:
    """The topic of the undecodable values of a pipeline. group: of its plan."""
    return f"{group}.undecodable"


def line_of(topic: Column, partition: Column, offset: Column, value: Column) -> Column:
    """A Kafka record as a line of the contract (schemas.engine.UndecodableLine), binary."""
    fields = F.struct(
        F.lit("undecodable").alias("event"),
        topic.alias("topic"),
        partition.alias("partition"),
        offset.alias("offset"),
        F.base64(F.substring(value, 1, VALUE_BYTES)).alias("value"),
        F.coalesce(F.length(value), F.lit(0)).alias("bytes"),
    )
    return F.to_json(fields).cast("binary")


class Undecodable:
    """Passes on the undecodable values of a pipeline. After a restart of the driver, from the last
    one that was passed on, or a few seconds before. Raises KafkaException."""

    def __init__(self, plan: EnginePlan) -> None:
        topic = topic_of(plan.group)
        client = {"bootstrap.servers": plan.bootstrap, **plan.properties}
        _create(AdminClient(client), topic)
        # Rarely asks an empty topic: a fetch waits at the broker until there is a record.
        idle = {"fetch.wait.max.ms": 10_000, "auto.offset.reset": "earliest"}
        self._consumer = Consumer(client | idle | {"group.id": topic})
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_STORED)])

    def pass_on(self, voice: Voice) -> None:
        """Report the values that have arrived. Anybody can write to the topic, so that other
        records are ignored."""
        for message in self._consumer.consume(MOST_AT_ONCE, 0):
            with suppress(ValidationError):
                voice.undecodable(UndecodableLine.model_validate_json(message.value() or b""))

    def close(self) -> None:
        """Keep the position, and close the connection."""
        self._consumer.close()


def _create(admin: AdminClient, topic: str) -> None:
    """Create the topic, unless this pipeline did so before a restart."""
    created = admin.create_topics([NewTopic(topic, 1, config=TOPIC_CONFIG)])
    try:
        created[topic].result(KAFKA_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
