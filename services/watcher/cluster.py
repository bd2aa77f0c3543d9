"""The watched cluster, read only: client settings, offsets of its topics, and the clocks of its
brokers, from this machine and from each other.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from schemas.watch import WatchedKafka
from services.runtime.kafka import (
    KAFKA_TIMEOUT_S,
    Place,
    logged,
    open_client_properties,
)
from services.runtime.settings import ServiceSettings

MOST_BEHIND_MS: Final = 5_000
SPAN_MS: Final = 60_000  # a minimum is of a span of this length and of the span before


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
    result = consumer.offsets_for_times(asked, KAFKA_TIMEOUT_S) if asked else []
    return {(each.topic, each.partition): _offset(consumer, each) for each in result}


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


@dataclass
class _Least:
    """Minimum delay of a span of time, and of the span before it if there is one."""

    since_ms: int
    now_ms: int
    before_ms: int | None = None

    @property
    def ms(self) -> int:
        """The minimum of both."""
        return self.now_ms if self.before_ms is None else min(self.now_ms, self.before_ms)


class BrokerClocks:
    """Clock offset of each leader from this machine, estimated from records.

    A record is seen after its time, so the minimum delay is the clock offset plus the shortest
    transit time. Only the delay of a fresh record, which is seen shortly after its leader stamped
    it, estimates the offset; the delay of any other record is only an upper bound.
    """

    def __init__(self) -> None:
        self._stamping: set[int] = set()
        self._any: dict[int, _Least] = {}
        self._fresh: dict[int, _Least] = {}
        self._after: dict[int, _Least] = {}

    def saw(self, leader: int, time_ms: int, now: int, is_stamp: bool, is_fresh: bool) -> None:
        """Note when a record of a leader was seen here. is_stamp: whether the leader set its
        time."""
        if is_stamp:
            self._stamping.add(leader)
        _note(self._any, leader, now - time_ms, now)
        if is_stamp and is_fresh:
            _note(self._fresh, leader, now - time_ms, now)

    def appended_after(self, leader: int, time_ms: int, asked_ms: int) -> None:
        """Note a record that its leader stamped after a request for the end of its partition,
        which was sent at a time of this machine."""
        _note(self._after, leader, time_ms - asked_ms, asked_ms)

    def behind_span_ms(self) -> tuple[int, int] | None:
        """How far all clocks are behind this machine's, at least and at most; negative: ahead.
        Within a leader the span is the shortest time from a request for an end to the next record,
        and from a record to its arrival here, plus a millisecond on each side for rounding. None
        unless both are known of each leader that sets times."""
        known = self._stamping & self._after.keys() & self._fresh.keys()
        if not known or known != self._stamping:
            return None
        spans = [(-self._after[each].ms - 1, self._fresh[each].ms + 1) for each in known]
        return min(min(span) for span in spans), max(max(span) for span in spans)

    def behind_ms(self) -> int:
        """How far the slowest clock may be behind this machine's, at most MOST_BEHIND_MS; 0 if
        ahead."""
        return min(
            MOST_BEHIND_MS, max([0, *(each.ms for each in (self._any | self._fresh).values())])
        )

    def difference_ms(self) -> int | None:
        """Maximum clock difference between brokers; None with fewer than two estimates."""
        result = [each.ms for each in self._fresh.values()]
        return max(result) - min(result) if len(result) > 1 else None

    def leaders(self) -> list[int]:
        """Brokers whose timestamps were seen."""
        return sorted(self._stamping)


def _note(delays: dict[int, _Least], leader: int, took_ms: int, now: int) -> None:
    least = delays.get(leader)
    if least is None:
        delays[leader] = _Least(now, took_ms)
    elif now - least.since_ms >= SPAN_MS:
        delays[leader] = _Least(now, took_ms, least.now_ms)
    else:
        least.now_ms = min(least.now_ms, took_ms)
