"""Kafka clients with the settings that every service of this project uses."""

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from schemas.frame import tag_of
from services.runtime.settings import ServiceSettings

KAFKA_TIMEOUT_S = 15.0
_LEADERLESS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)
# Levels of librdkafka's logs. A command's would go to its terminal, where it tells troubles itself.
NO_LOGS, ERRORS = 0, 3
CONSOLE = "console"


class KafkaUnavailableError(RuntimeError):
    """The broker did not answer in time."""


class NoTopicError(KafkaUnavailableError):
    """The broker has answered: it does not have the topic."""


def client_properties(settings: ServiceSettings, client: str) -> dict[str, Any]:
    """What every client of librdkafka needs: where the broker is, its name, logs of errors only (of
    a command none), the login and the user's own properties. Raises SecretFileError."""
    return open_client_properties(settings, client) | {
        "bootstrap.servers": settings.bootstrap,
        **settings.client_properties,
    }


def open_client_properties(settings: ServiceSettings, client: str) -> dict[str, Any]:
    """The same for a client that may only do what everybody may, without a login of the local
    broker."""
    return {
        "bootstrap.servers": settings.open_bootstrap,
        "client.id": f"tidegauge-{client}",
        "log_level": NO_LOGS if client == CONSOLE else ERRORS,
        **settings.kafka_properties,
    }


def admin_client(settings: ServiceSettings, client: str) -> AdminClient:
    """An admin client."""
    return AdminClient(client_properties(settings, client))


def idempotent_producer(settings: ServiceSettings, client: str, **properties: Any) -> Producer:
    """A producer that neither repeats nor reorders: idempotent, all acknowledgements, lz4.

    A key gets the partition that Java clients give it: outputs of one key have the partition
    number of its inputs, whatever the pipeline is written in.
    """
    return Producer(
        {
            **client_properties(settings, client),
            "enable.idempotence": True,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            **properties,
        }
    )


def frame_tag(settings: ServiceSettings, run_id: str) -> bytes:
    """What the frames of a run on its way in begin with: only who can log in to Kafka as a service
    knows it. Raises SecretFileError."""
    return tag_of(run_id, settings.client_properties.get("sasl.password", ""))


def event_producer(settings: ServiceSettings, client: str) -> Producer:
    """A producer for events: idempotent, all acknowledgements, bounded queue, 10 ms linger."""
    return idempotent_producer(
        settings, client, **{"linger.ms": 10, "queue.buffering.max.messages": 100_000}
    )


def assigned_consumer(settings: ServiceSettings, client: str, **properties: Any) -> Consumer:
    """A consumer whose owner assigns partitions and offsets itself: no group, no commits.

    Fetches wait up to 100 ms for 64 KiB, which keeps an idle consumer quiet; properties override.
    """
    return Consumer(
        {
            **client_properties(settings, client),
            "group.id": f"tidegauge-{client}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.min.bytes": 65_536,
            "fetch.wait.max.ms": 100,
            "enable.partition.eof": False,
            **properties,
        }
    )


def partition_ids(consumer: Consumer, topic: str) -> tuple[int, ...]:
    """Partitions of a topic in order. Raises NoTopicError when it is not there,
    KafkaUnavailableError when the broker does not say what they are, KafkaException."""
    found = consumer.list_topics(topic, timeout=KAFKA_TIMEOUT_S).topics.get(topic)
    if found is None or (found.error and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART):
        raise NoTopicError(f"topic {topic} is not there")
    if found.error is not None or not found.partitions:
        reason = found.error.str() if found.error else "the broker names no partition"
        raise KafkaUnavailableError(f"topic {topic} cannot be read: {reason}")
    return tuple(sorted(found.partitions))


def watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """First and next offset of a partition.

    A topic or partition that was just created has no leader for a moment, so that is waited for,
    as is whatever else the client says will pass. Raises KafkaException when the broker refuses, or
    still does after 15 s.
    """
    deadline_s = time.monotonic() + KAFKA_TIMEOUT_S
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=KAFKA_TIMEOUT_S)
            return int(low), int(high)
        except KafkaException as error:
            found = error.args[0]
            passes = found.code() in _LEADERLESS or found.retriable()
            if not passes or time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


def ends_of(consumer: Consumer, topics: Iterable[str]) -> dict[tuple[str, int], int]:
    """Offset of the next record of every partition of some topics, by topic and partition."""
    return {
        (topic, partition): end
        for topic in topics
        for partition, end in enumerate(end_offsets(consumer, topic))
    }


def end_offsets(consumer: Consumer, topic: str) -> tuple[int, ...]:
    """Offset of the next record of each partition of a topic, in partition order."""
    return tuple(
        watermarks(consumer, TopicPartition(topic, partition))[1]
        for partition in partition_ids(consumer, topic)
    )
