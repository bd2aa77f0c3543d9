"""Reads the bus from now on and watches whether output topics keep growing."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import structlog
from confluent_kafka import Consumer, TopicPartition

from schemas import codec
from schemas.details import read_event
from services.runtime.events import RECORD_ERRORS, Events
from services.runtime.kafka import assigned_consumer, end_offsets, ends_of
from services.runtime.settings import ServiceSettings

REST_POLL_S = 0.1
log = structlog.get_logger()
_QUICK = {"fetch.min.bytes": 1, "fetch.wait.max.ms": 200}


class Bus:
    """Events of some `results.*` topics, published after this object was made."""

    def __init__(self, settings: ServiceSettings, topics: Iterable[str], events: Events) -> None:
        self._consumer = assigned_consumer(settings, "conductor-bus", **_QUICK)
        # The broker answers what a client asks in turn, so whoever also fetches waits for that.
        self._asking = assigned_consumer(settings, "conductor-bus-offsets")
        self._events = events
        self._topics = tuple(topics)
        self._next = ends_of(self._asking, self._topics)
        self._consumer.assign([TopicPartition(*key, offset) for key, offset in self._next.items()])

    def poll(self, timeout_s: float) -> list[tuple[str, dict[str, Any]]]:
        """Events that have arrived, after waiting at most `timeout_s` for the first."""
        found = []
        for message in self._consumer.consume(500, timeout_s):
            if message.error():
                continue
            self._next[message.topic(), message.partition()] = message.offset() + 1
            topic = message.topic()
            try:
                found.append((topic, read_event(topic, message.value())))
            except codec.DecodeError as error:
                self._events.dead_letter(message, str(error))
        return found

    def rest(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What was published until now and not returned yet. Topics to which somebody publishes
        all the time have no last event to wait for, so the ends of one moment count."""
        ends = ends_of(self._asking, self._topics)
        while any(self._next[place] < end for place, end in ends.items()):
            yield from self.poll(REST_POLL_S)

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()
        self._asking.close()


def heard(
    listen: Callable[[str, dict[str, Any]], None], topic: str, record: dict[str, Any]
) -> None:
    """Let somebody hear an event, unless its values are such that nobody can: it is projected all
    the same, and must not end the conductor."""
    try:
        listen(topic, record)
    except RECORD_ERRORS:
        log.exception("event_refused", topic=topic, run_id=record["run_id"])


class SteadyOutputs:
    """Which output topics keep growing: proof from outside that a query is active and keeps up,
    not merely started; the probe traffic that makes them grow comes every second. A topic is steady
    once it has grown in `intervals` consecutive ones of INTERVAL_S. One whose micro-batches take
    longer than that, because queries outnumber the cores, is steady once it has grown in each
    of SLOW_SPANS spans of SLOW_INTERVALS. Pipelines that are known to keep up need fewer
    `intervals`."""

    INTERVAL_S = 2.0
    SLOW_INTERVALS = 5
    SLOW_SPANS = 4

    def __init__(
        self,
        settings: ServiceSettings,
        starts: dict[str, tuple[int, ...]],
        intervals: int,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer: Consumer = assigned_consumer(settings, "conductor-watch", **_QUICK)
        self._clock_s = clock_s
        self._intervals = intervals
        self._looked_s = clock_s()
        self._ends = dict(starts)
        kept = max(intervals, self.SLOW_INTERVALS * self.SLOW_SPANS)
        self._grew = {topic: deque[bool](maxlen=kept) for topic in starts}

    @property
    def unsteady(self) -> list[str]:
        """Topics that have not grown for long enough, sorted."""
        return sorted(
            topic for topic, grew in self._grew.items() if not is_steady(grew, self._intervals)
        )

    def look(self) -> list[str]:
        """Look again when an interval is over; returns what is unsteady."""
        if self._clock_s() - self._looked_s >= self.INTERVAL_S:
            self._looked_s = self._clock_s()
            for topic, before in self._ends.items():
                self._ends[topic] = end_offsets(self._consumer, topic)
                self._grew[topic].append(self._ends[topic] != before)
        return self.unsteady

    def close(self) -> None:
        """Stop watching."""
        self._consumer.close()


def is_steady(grew: Sequence[bool], intervals: int) -> bool:
    """Whether a topic that grew in these intervals, newest last, is one that keeps up."""
    newest = list(grew)[::-1]
    if len(newest) >= intervals and all(newest[:intervals]):
        return True
    length, spans = SteadyOutputs.SLOW_INTERVALS, SteadyOutputs.SLOW_SPANS
    slow = [newest[start : start + length] for start in range(0, length * spans, length)]
    return all(len(span) == length and any(span) for span in slow)
