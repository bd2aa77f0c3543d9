"""Kafka clients with the settings common to all services.

Topics of the catalogue are created; existing ones are not changed. Every partition of the input and
output topics gets its replicas on the same brokers in the same order, so one broker leads them all
and one clock stamps every record.
"""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from schemas.catalogue import Topic
from schemas.frame import tag_of
from services.runtime.logs import get_log
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
DELETE_TIMEOUT_S = 5
LAG: Final = "kafka_consumergroup_lag"
Place = tuple[str, int]
"""Topic and partition."""


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
        message, now_s = record.getMessage(), self._clock_s()
        what = message.partition(" (after ")[0]  # how long the connection existed differs
        if now_s - self._told_s.get(what, -REPEAT_S) < REPEAT_S:
            return
        if len(self._told_s) >= MOST_REMEMBERED:
            self._told_s.clear()
        self._told_s[what] = now_s
        get_log().error("kafka_client", said=message)


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
    result = consumer.list_topics(topic, timeout=KAFKA_TIMEOUT_S).topics.get(topic)
    if result is None or (result.error and result.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART):
        raise NoTopicError(f"topic {topic} does not exist")
    if result.error is not None or not result.partitions:
        reason = result.error.str() if result.error else "the broker returned no partition"
        raise KafkaUnavailableError(f"topic {topic} cannot be read: {reason}")
    return tuple(sorted(result.partitions))


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
            result = error.args[0]
            passes = result.code() in _LEADERLESS or result.retriable()
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


def topic_config(topic: Topic) -> dict[str, str]:
    """Broker configuration of a topic."""
    stamp = "LogAppendTime" if topic.log_append_time else "CreateTime"
    return {
        "message.timestamp.type": stamp,
        "retention.ms": str(topic.retention_s * 1000),
        "retention.bytes": str(topic.retention_bytes),
        "segment.bytes": str(min(topic.retention_bytes // 4, 256 * 1024 * 1024)),
        **topic.config,
    }


def ensure_topics(admin: AdminClient, topics: Iterable[Topic], replication: int = 1) -> None:
    """Create missing topics and wait until they exist.

    Waits up to 15 s for brokers that are still joining, because a topic keeps the replicas that it
    was created with. Raises KafkaException if the broker refuses or does not respond within 15 s,
    KafkaUnavailableError if there are fewer brokers than replicas after 15 s.
    """
    there = admin.list_topics(timeout=KAFKA_TIMEOUT_S).topics
    missing = [topic for topic in topics if topic.name not in there]
    if not missing:
        return
    brokers = _await_brokers(admin, replication)
    wanted = [
        NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replica_assignment=[brokers] * topic.partitions,
            config=topic_config(topic),
        )
        for topic in missing
    ]
    for future in admin.create_topics(wanted, operation_timeout=KAFKA_TIMEOUT_S).values():
        try:
            future.result(timeout=KAFKA_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    _await_topics(admin, {topic.topic for topic in wanted})


def delete_topics(admin: AdminClient, prefixes: tuple[str, ...]) -> None:
    """Delete the topics with one of these prefixes. Raises KafkaException."""
    there = admin.list_topics(timeout=DELETE_TIMEOUT_S).topics
    result = [name for name in there if name.startswith(prefixes)]
    if result:
        for future in admin.delete_topics(result, request_timeout=DELETE_TIMEOUT_S).values():
            future.result(DELETE_TIMEOUT_S)


def _await_brokers(admin: AdminClient, count: int) -> list[int]:
    """Wait for `count` brokers; returns the lowest ids."""
    deadline = time.monotonic() + KAFKA_TIMEOUT_S
    while True:
        result = sorted(admin.list_topics(timeout=KAFKA_TIMEOUT_S).brokers)
        if len(result) >= count:
            return result[:count]
        if time.monotonic() > deadline:
            there = "is 1 broker" if len(result) == 1 else f"are {len(result)} brokers"
            raise KafkaUnavailableError(f"TIDEGAUGE_REPLICATION is {count}, but there {there}")
        time.sleep(0.2)


def _await_topics(admin: AdminClient, names: set[str]) -> None:
    deadline = time.monotonic() + KAFKA_TIMEOUT_S
    while names - set(admin.list_topics(timeout=KAFKA_TIMEOUT_S).topics):
        if time.monotonic() > deadline:
            raise KafkaUnavailableError(f"topics {sorted(names)} did not appear")
        time.sleep(0.05)


def committed_offsets(admin: AdminClient, group: str, timeout_s: float) -> dict[Place, int]:
    """Committed offset of each partition; negative if there is none. Raises KafkaException,
    TimeoutError of concurrent.futures."""
    asked = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=timeout_s
    )
    result = asked[group].result(timeout_s).topic_partitions
    return {(each.topic, each.partition): each.offset for each in result if not each.error}


def newest_offsets(
    admin: AdminClient, places: Iterable[Place], timeout_s: float
) -> dict[Place, int]:
    """End offset of each partition, without deleted ones. Raises TimeoutError of
    concurrent.futures."""
    asked = {TopicPartition(*place): OffsetSpec.latest() for place in places}
    if not asked:
        return {}
    ends = {}
    for partition, future in admin.list_offsets(asked, request_timeout=timeout_s).items():
        try:
            ends[partition.topic, partition.partition] = future.result(timeout_s).offset
        except KafkaException:
            continue  # the topic was deleted
    return ends
