"""Undecodable values. The queries write them to a topic of the pipeline, and the driver passes them
to the runner, because a pipeline must not write dead letters (decision 708).
"""

from contextlib import suppress

from confluent_kafka import OFFSET_STORED, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pydantic import ValidationError
from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.engine import VALUE_BYTES, EnginePlan, UndecodableLine
from services.runtime.program import Voice

MOST_AT_ONCE = 10_000
KAFKA_TIMEOUT_S = 15
TOPIC_CONFIG = {"retention.bytes": str(64 * 1024**2), "segment.bytes": str(16 * 1024**2)}


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
