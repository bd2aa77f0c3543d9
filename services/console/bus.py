"""Follow the bus from now on."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import TopicPartition

from schemas import codec
from schemas.details import read_event
from services.runtime.kafka import assigned_consumer, ends_of
from services.runtime.settings import ServiceSettings


class Follower:
    """Events of some `results.*` topics, published after this object was made."""

    def __init__(self, settings: ServiceSettings, topics: Iterable[str]) -> None:
        self._consumer = assigned_consumer(
            settings, "console", **{"fetch.min.bytes": 1, "fetch.wait.max.ms": 300}
        )
        # The broker answers what a client asks in turn, so whoever also fetches waits for that.
        self._asking = assigned_consumer(settings, "console-offsets")
        self._consumer.assign(
            [TopicPartition(*place, offset) for place, offset in self.ends(topics).items()]
        )

    def poll(self, timeout_s: float) -> list[tuple[str, dict[str, Any]]]:
        """Events that have arrived, after waiting at most `timeout_s`. What is none is left to
        others, who keep it as a dead letter."""
        found = []
        for message in self._consumer.consume(1000, timeout_s):
            if message.error():
                continue
            topic = message.topic()
            try:
                found.append((topic, read_event(topic, message.value())))
            except codec.DecodeError:
                continue
        return found

    def ends(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Next offset of every partition of some topics, now."""
        return ends_of(self._asking, topics)

    def close(self) -> None:
        """Stop following."""
        self._consumer.close()
        self._asking.close()
