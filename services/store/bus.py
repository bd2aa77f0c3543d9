"""Reads the results bus for the projector: every partition of every topic, from given offsets."""

import time
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from schemas.catalogue import CONCLUSIONS
from services.runtime.kafka import KAFKA_TIMEOUT_S, partition_ids, watermarks
from services.store.positions import Place
from services.store.tables import TABLES

POLL_RECORDS: Final = 5_000
LOOK_S: Final = 0.25  # interval of checks whether to stop


class Bus:
    """Reads with its own consumer. Not thread-safe."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def bounds(self) -> dict[Place, tuple[int, int]]:
        """First offset and end offset of every existing partition. Stops reading.

        Raises KafkaUnavailableError, KafkaException.
        """
        # A fetch waiting for records would delay each of these requests.
        self._consumer.unassign()
        return {
            place: watermarks(self._consumer, TopicPartition(*place)) for place in self._places()
        }

    def has_more_than(self, known: Container[Place]) -> bool:
        """Whether there are partitions other than the known ones. False if the broker is
        unreachable."""
        try:
            found = self._consumer.list_topics(timeout=KAFKA_TIMEOUT_S).topics
        except KafkaException:
            return False  # broker unreachable; the caller retries
        there = ((topic, n) for topic in TABLES if topic in found for n in found[topic].partitions)
        return any(place not in known for place in there)

    def behind(self, place: Place, offset: int) -> int:
        """Number of records of a partition after this offset, as of the last fetch."""
        _low, end = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
        return max(0, int(end) - offset)

    def first(self, place: Place) -> int:
        """Current first offset of a partition."""
        return watermarks(self._consumer, TopicPartition(*place))[0]

    def begin(self, offsets: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets."""
        self._consumer.assign([TopicPartition(*at, offset) for at, offset in offsets.items()])

    def poll(self, seconds: float, stopped: Callable[[], bool]) -> list[Message]:
        """Records that arrive within this time, in order within each partition. Returns earlier if
        `stopped`, and after a conclusion, because a report waits for it."""
        polled: list[Message] = []
        deadline_s = time.monotonic() + seconds
        while len(polled) < POLL_RECORDS and not stopped():
            left_s = deadline_s - time.monotonic()
            wait_s = max(0, min(left_s, LOOK_S))
            found = self._consumer.consume(POLL_RECORDS - len(polled), wait_s)
            polled += found
            if left_s <= LOOK_S or CONCLUSIONS in map(Message.topic, found):
                break
        return [message for message in polled if message.error() is None]

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _places(self) -> Iterator[Place]:
        for topic in TABLES:
            for partition in partition_ids(self._consumer, topic):
                yield topic, partition
