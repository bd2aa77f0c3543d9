"""Creates the topics of the catalogue; existing topics are not changed. Deletes topics.

Every partition of the input and output topics gets its replicas on the same brokers in the same
order, so one broker leads them all and one clock stamps every record.
"""

import time
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from schemas.catalogue import Topic
from services.runtime.kafka import KAFKA_TIMEOUT_S, KafkaUnavailableError

DELETE_TIMEOUT_S = 5


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
    found = [name for name in there if name.startswith(prefixes)]
    if found:
        for future in admin.delete_topics(found, request_timeout=DELETE_TIMEOUT_S).values():
            future.result(DELETE_TIMEOUT_S)


def _await_brokers(admin: AdminClient, count: int) -> list[int]:
    """Wait for `count` brokers; returns the lowest ids."""
    deadline = time.monotonic() + KAFKA_TIMEOUT_S
    while True:
        found = sorted(admin.list_topics(timeout=KAFKA_TIMEOUT_S).brokers)
        if len(found) >= count:
            return found[:count]
        if time.monotonic() > deadline:
            there = "is 1 broker" if len(found) == 1 else f"are {len(found)} brokers"
            raise KafkaUnavailableError(f"TIDEGAUGE_REPLICATION is {count}, but there {there}")
        time.sleep(0.2)


def _await_topics(admin: AdminClient, names: set[str]) -> None:
    deadline = time.monotonic() + KAFKA_TIMEOUT_S
    while names - set(admin.list_topics(timeout=KAFKA_TIMEOUT_S).topics):
        if time.monotonic() > deadline:
            raise KafkaUnavailableError(f"topics {sorted(names)} did not appear")
        time.sleep(0.05)
