"""Reads the bus from now on and watches output topics for their first record."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from schemas import codec
from services.runtime.events import Events
from services.runtime.kafka import assigned_consumer, end_offsets
from services.runtime.settings import ServiceSettings

_QUICK = {"fetch.min.bytes": 1, "fetch.wait.max.ms": 200}


class Bus:
    """Events of some `results.*` topics, published after this object was made."""

    def __init__(self, settings: ServiceSettings, topics: Iterable[str], events: Events) -> None:
        self._consumer = assigned_consumer(settings, "conductor-bus", **_QUICK)
        self._events = events
        self._topics = tuple(topics)
        self._next: dict[tuple[str, int], int] = {}
        for topic in self._topics:
            for partition, offset in enumerate(end_offsets(self._consumer, topic)):
                self._next[topic, partition] = offset
        self._consumer.assign([TopicPartition(*key, offset) for key, offset in self._next.items()])

    def poll(self, timeout_s: float) -> list[tuple[str, dict[str, Any]]]:
        """Events that have arrived, after waiting at most `timeout_s` for the first."""
        found = []
        for message in self._consumer.consume(500, timeout_s):
            if message.error():
                continue
            self._next[message.topic(), message.partition()] = message.offset() + 1
            try:
                found.append((message.topic(), codec.decode(message.value())[1]))
            except codec.DecodeError as error:
                self._events.dead_letter(message, str(error))
        return found

    def behind(self) -> bool:
        """Whether events that are on the bus now have not been returned yet."""
        return any(
            self._next[topic, partition] < end
            for topic in self._topics
            for partition, end in enumerate(end_offsets(self._consumer, topic))
        )

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()


class FirstOutputs:
    """Which output topics have received a record since their start offsets: proof from outside
    that a query is active, not merely started."""

    def __init__(self, settings: ServiceSettings, starts: dict[str, tuple[int, ...]]) -> None:
        self._consumer: Consumer = assigned_consumer(settings, "conductor-watch", **_QUICK)
        self._starts = starts
        self.silent = set(starts)

    def look(self) -> set[str]:
        """Topics that are still silent."""
        for topic in sorted(self.silent):
            if end_offsets(self._consumer, topic) != self._starts[topic]:
                self.silent.discard(topic)
        return self.silent

    def close(self) -> None:
        """Stop watching."""
        self._consumer.close()
