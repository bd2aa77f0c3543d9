"""Reads events published on the results bus from now on.

bus = Bus(settings, "conductor", ("results.lifecycle",), events)
for event in bus.poll(timeout_s=0.1): ...
"""

from collections.abc import Iterable, Iterator

from confluent_kafka import TopicPartition

from schemas import codec
from schemas.events import BusEvent, read_event
from services.runtime.events import IDLE_FETCH_MS, Events, dead_letter_of
from services.runtime.kafka import assigned_consumer, ends_of
from services.runtime.settings import ServiceSettings

REST_POLL_S = 0.1
MAX_RECORDS = 1_000
_QUICK = {
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": IDLE_FETCH_MS,
    # A suite does not read its bus during a run. The default is 64 MB of unread events.
    "queued.max.messages.kbytes": 1024,
    "fetch.queue.backoff.ms": 200,  # until the next fetch once that much is unread
}


class Bus:
    """Events of some `results.*` topics, published after this object was made. One thread.

    name: of the reader, in the broker's logs. events: receives records that are not events as dead
    letters; None if another reader does that.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        name: str,
        topics: Iterable[str],
        events: Events | None = None,
    ) -> None:
        self._consumer = assigned_consumer(settings, f"{name}-bus", **_QUICK)
        # The broker answers a client's requests in order, so offset queries must not wait for a
        # fetch.
        self._asking = assigned_consumer(settings, f"{name}-bus-offsets")
        self._events = events
        self._topics = tuple(topics)
        self._next = self.ends(self._topics)
        self._consumer.assign([TopicPartition(*key, offset) for key, offset in self._next.items()])

    def poll(self, timeout_s: float) -> list[BusEvent]:
        """Events that have arrived, after waiting at most `timeout_s`."""
        events = []
        for message in self._consumer.consume(MAX_RECORDS, timeout_s):
            if message.error():
                continue
            topic = message.topic()
            self._next[topic, message.partition()] = message.offset() + 1
            try:
                events.append(read_event(topic, message.value()))
            except codec.DecodeError as error:
                if self._events is not None:
                    self._events.dead_letter(dead_letter_of(message, str(error)))
        return events

    def rest(self) -> Iterator[BusEvent]:
        """Events published until now and not returned yet. Reads up to the end offsets at the time
        of the call, because a busy topic never ends."""
        ends = self.ends(self._topics)
        while any(self._next[place] < end for place, end in ends.items()):
            yield from self.poll(REST_POLL_S)

    def ends(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Current end offset of every partition of some topics."""
        return ends_of(self._asking, topics)

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()
        self._asking.close()
