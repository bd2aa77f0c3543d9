"""The results bus as the projector reads it: every partition of every topic, from given offsets."""

import time
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from services.runtime.kafka import KAFKA_TIMEOUT_S, partition_ids, watermarks
from services.store.positions import Place
from services.store.tables import TABLES

POLL_RECORDS: Final = 5_000
LOOK_S: Final = 0.25  # between two looks whether to stop


class Bus:
    """Reads with a consumer of its own. For one thread."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def bounds(self) -> dict[Place, tuple[int, int]]:
        """First offset and end offset of every partition there is; ends the reading.

        Raises KafkaUnavailableError, KafkaException.
        """
        # A fetch that waits for records would hold up each of these questions.
        self._consumer.unassign()
        return {
            place: watermarks(self._consumer, TopicPartition(*place)) for place in self._places()
        }

    def has_more_than(self, known: Container[Place]) -> bool:
        """Whether there are partitions besides those that are known. False if the broker is
        unreachable."""
        try:
            found = self._consumer.list_topics(timeout=KAFKA_TIMEOUT_S).topics
        except KafkaException:
            return False  # the broker is away; asked again
        there = ((topic, n) for topic in TABLES if topic in found for n in found[topic].partitions)
        return any(place not in known for place in there)

    def behind(self, place: Place, offset: int) -> int:
        """How many records of a partition follow this offset, as far as the last fetch told."""
        _low, end = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
        return max(0, int(end) - offset)

    def first(self, place: Place) -> int:
        """First offset of a partition that there is now."""
        return watermarks(self._consumer, TopicPartition(*place))[0]

    def begin(self, offsets: Mapping[Place, int]) -> None:
        """Read these partitions from here on."""
        self._consumer.assign([TopicPartition(*at, offset) for at, offset in offsets.items()])

    def poll(self, seconds: float, stopped: Callable[[], bool]) -> list[Message]:
        """Records that came within this time, or before `stopped`, in order in each partition."""
        polled: list[Message] = []
        deadline_s = time.monotonic() + seconds
        while len(polled) < POLL_RECORDS and not stopped():
            left_s = deadline_s - time.monotonic()
            polled += self._consumer.consume(
                POLL_RECORDS - len(polled), max(0, min(left_s, LOOK_S))
            )
            if left_s <= LOOK_S:
                break
        return [message for message in polled if message.error() is None]

    def close(self) -> None:
        """Leave the bus."""
        self._consumer.close()

    def _places(self) -> Iterator[Place]:
        for topic in TABLES:
            for partition in partition_ids(self._consumer, topic):
                yield topic, partition
