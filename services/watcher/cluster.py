"""Client settings for the watched cluster, and offsets of its topics."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from schemas.watch import WatchedKafka
from services.runtime.kafka import KAFKA_TIMEOUT_S, logged, open_client_properties
from services.runtime.settings import ServiceSettings

Place = tuple[str, int]
"""Topic and partition."""


def client_properties(kafka: WatchedKafka, name: str, settings: ServiceSettings) -> dict[str, Any]:
    """librdkafka properties of the clients of a watch."""
    if not kafka.bootstrap:
        return open_client_properties(settings, f"watch-{name}") | kafka.properties
    return {
        "bootstrap.servers": kafka.bootstrap,
        **logged(f"watch-{name}"),
        **kafka.properties,
    }


def offsets_at(consumer: Consumer, places: Iterable[Place], time_ms: int) -> dict[Place, int]:
    """The offset of the first record of each partition at or after a time, or the end offset.
    Raises KafkaException."""
    asked = [TopicPartition(*place, time_ms) for place in places]
    found = consumer.offsets_for_times(asked, KAFKA_TIMEOUT_S) if asked else []
    return {(one.topic, one.partition): _offset(consumer, one) for one in found}


def _offset(consumer: Consumer, place: TopicPartition) -> int:
    if place.offset >= 0:
        return int(place.offset)
    return int(consumer.get_watermark_offsets(place, KAFKA_TIMEOUT_S)[1])


def bounds_of(consumer: Consumer, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
    """The first offset of each partition, and the next one. Raises KafkaException."""
    return {
        place: consumer.get_watermark_offsets(TopicPartition(*place), KAFKA_TIMEOUT_S)
        for place in places
    }
