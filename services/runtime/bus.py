"""Reads events of the results bus that are published from now on.

bus = Bus(settings, "conductor", ("results.lifecycle",), events)
for topic, record in bus.poll(timeout_s=0.1): ...
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import structlog
from confluent_kafka import TopicPartition

from schemas import codec
from schemas.event_payloads import read_event
from services.runtime.events import RECORD_ERRORS, Events
from services.runtime.kafka import assigned_consumer, ends_of
from services.runtime.settings import ServiceSettings

REST_POLL_S = 0.1
MAX_RECORDS = 1_000
_QUICK = {"fetch.min.bytes": 1, "fetch.wait.max.ms": 200}
log = structlog.get_logger()


class Bus:
    """Events of some `results.*` topics, published after this object was made. One thread.

    name: of the reader, in the broker's logs. events: where records that are not events become dead
    letters; None for a reader that leaves that to others.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        name: str,
        topics: Iterable[str],
        events: Events | None = None,
    ) -> None:
        self._consumer = assigned_consumer(settings, f"{name}-bus", **_QUICK)
        # The broker answers the requests of a client in order: one that fetches waits for that.
        self._asking = assigned_consumer(settings, f"{name}-bus-offsets")
        self._events = events
        self._topics = tuple(topics)
        self._next = self.ends(self._topics)
        self._consumer.assign([TopicPartition(*key, offset) for key, offset in self._next.items()])

    def poll(self, timeout_s: float) -> list[tuple[str, dict[str, Any]]]:
        """Topic and fields of events that have arrived, after waiting at most `timeout_s`."""
        found = []
        for message in self._consumer.consume(MAX_RECORDS, timeout_s):
            if message.error():
                continue
            topic = message.topic()
            self._next[topic, message.partition()] = message.offset() + 1
            try:
                found.append((topic, read_event(topic, message.value())))
            except codec.DecodeError as error:
                if self._events is not None:
                    self._events.dead_letter(message, str(error))
        return found

    def rest(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Events that were published until now and not returned yet. A topic to which others
        publish all the time has no last event, so the ends of one moment count."""
        ends = self.ends(self._topics)
        while any(self._next[place] < end for place, end in ends.items()):
            yield from self.poll(REST_POLL_S)

    def ends(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Next offset of every partition of some topics, now."""
        return ends_of(self._asking, topics)

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()
        self._asking.close()


def heard(
    listen: Callable[[str, dict[str, Any]], None], topic: str, record: dict[str, Any]
) -> None:
    """Give an event to a listener. One whose values the listener cannot take is logged: it is
    projected all the same, and must not end the service."""
    try:
        listen(topic, record)
    except RECORD_ERRORS:
        log.exception("event_refused", topic=topic, run_id=record["run_id"])
