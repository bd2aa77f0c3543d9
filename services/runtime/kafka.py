"""Kafka clients with the settings common to all services."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import structlog
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
# librdkafka log levels. A command's terminal gets none: the command reports errors itself.
NO_LOGS, ERRORS = 0, 3
CONSOLE = "console"
REPEAT_S = 30.0
MOST_REMEMBERED = 1_000
SILENT = {"log_level": NO_LOGS}


class KafkaUnavailableError(RuntimeError):
    """The broker did not answer in time."""


class NoTopicError(KafkaUnavailableError):
    """The broker responded that the topic does not exist."""


class ClientLog(logging.Handler):
    """Writes the errors of librdkafka's clients to the log of the service. A client that cannot
    connect repeats its error at every attempt: each is written once in REPEAT_S."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock_s = clock_s
        self._told_s: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write one error, unless it was written a short time ago."""
        said, now_s = record.getMessage(), self._clock_s()
        what = said.partition(" (after ")[0]  # how long the connection existed differs
        if now_s - self._told_s.get(what, -REPEAT_S) < REPEAT_S:
            return
        if len(self._told_s) >= MOST_REMEMBERED:
            self._told_s.clear()
        self._told_s[what] = now_s
        structlog.get_logger().error("kafka_client", said=said)


def _client_logger() -> logging.Logger:
    logger = logging.Logger("librdkafka")  # of no hierarchy: nobody else writes its lines
    logger.addHandler(ClientLog())
    return logger


CLIENT_LOGGER = _client_logger()


def logged(client: str) -> dict[str, Any]:
    """Name and log of a client. Without `logger`, librdkafka prints its errors on standard error,
    whatever that is. A client that is never polled keeps them until it is closed."""
    level = NO_LOGS if client == CONSOLE else ERRORS
    return {"client.id": f"tidegauge-{client}", "log_level": level, "logger": CLIENT_LOGGER}


def said_by_kafka(error: Exception) -> str:
    """The text of an error without the client's own names: `Broker: Unknown topic or partition`."""
    first = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return str(first.str()) if isinstance(first, KafkaError) else str(error)


def client_properties(settings: ServiceSettings, client: str) -> dict[str, Any]:
    """Properties of every librdkafka client: bootstrap servers, name, log level (errors; none for a
    command), login and the user's own properties. Raises SecretFileError."""
    return open_client_properties(settings, client) | {
        "bootstrap.servers": settings.bootstrap,
        **settings.client_properties,
    }


def open_client_properties(settings: ServiceSettings, client: str) -> dict[str, Any]:
    """The same for a client with public access only, without a login at the local broker."""
    return {
        "bootstrap.servers": settings.open_bootstrap,
        **logged(client),
        **settings.kafka_properties,
    }


def admin_client(settings: ServiceSettings, client: str) -> AdminClient:
    """An admin client. It raises its errors, so that it does not log them."""
    return AdminClient(client_properties(settings, client) | SILENT)


def idempotent_producer(settings: ServiceSettings, client: str, **properties: Any) -> Producer:
    """A producer without duplicates or reordering: idempotent, all acknowledgements, lz4.

    Partitions keys like Java clients: outputs of one key get the partition number of its inputs,
    whatever the pipeline's language.
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
    """Secret prefix of the frames of a run on the network: known only to those who can log in to
    Kafka as a service. Raises SecretFileError."""
    return tag_of(run_id, settings.client_properties.get("sasl.password", ""))


def event_producer(settings: ServiceSettings, client: str) -> Producer:
    """A producer for events: idempotent, all acknowledgements, bounded queue.

    librdkafka's thread polls without pause while an event has waited longer than the linger behind
    five of its partition in flight. The linger of 100 ms is longer than most acknowledgements take.
    """
    return idempotent_producer(
        settings, client, **{"linger.ms": 100, "queue.buffering.max.messages": 100_000}
    )


def assigned_consumer(settings: ServiceSettings, client: str, **properties: Any) -> Consumer:
    """A consumer with manually assigned partitions and offsets: no group, no commits.

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
    """Partitions of a topic in order. Raises NoTopicError if it does not exist,
    KafkaUnavailableError if the broker does not return them, KafkaException."""
    found = consumer.list_topics(topic, timeout=KAFKA_TIMEOUT_S).topics.get(topic)
    if found is None or (found.error and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART):
        raise NoTopicError(f"topic {topic} does not exist")
    if found.error is not None or not found.partitions:
        reason = found.error.str() if found.error else "the broker returned no partition"
        raise KafkaUnavailableError(f"topic {topic} cannot be read: {reason}")
    return tuple(sorted(found.partitions))


def watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """First and end offset of a partition.

    Retries while a new partition has no leader yet, and for other retriable errors. Raises
    KafkaException when the broker refuses, or still does after 15 s.
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
    """End offset of every partition of some topics, by topic and partition."""
    return {
        (topic, partition): end
        for topic in topics
        for partition, end in enumerate(end_offsets(consumer, topic))
    }


def end_offsets(consumer: Consumer, topic: str) -> tuple[int, ...]:
    """End offset of each partition of a topic, in partition order."""
    return tuple(
        watermarks(consumer, TopicPartition(topic, partition))[1]
        for partition in partition_ids(consumer, topic)
    )
