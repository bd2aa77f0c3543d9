"""Checks whether the output topics of a run keep growing."""

import time
from collections import deque
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer

from services.runtime.kafka import assigned_consumer, end_offsets
from services.runtime.settings import ServiceSettings

_QUICK = {"fetch.min.bytes": 1, "fetch.wait.max.ms": 200}


class SteadyOutputs:
    """Which output topics keep growing: external proof that a query is active and keeps up, not
    merely started. Probe traffic arrives every second. A topic is steady once it has grown in
    `intervals` consecutive intervals of INTERVAL_S. If micro-batches take longer, because queries
    outnumber the cores, it is steady once it has grown in each of SLOW_SPANS spans of
    SLOW_INTERVALS. Pipelines known to keep up need fewer `intervals`; with 0 a topic is steady at
    its first output, checked every FIRST_INTERVAL_S."""

    INTERVAL_S = 2.0
    FIRST_INTERVAL_S = 0.25
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
        self._interval_s = self.INTERVAL_S if intervals else self.FIRST_INTERVAL_S
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
        """Check again if an interval is over; returns the unsteady topics."""
        if self._clock_s() - self._looked_s >= self._interval_s:
            self._looked_s = self._clock_s()
            for topic in self._ends if self._intervals else self.unsteady:
                end = end_offsets(self._consumer, topic)
                self._grew[topic].append(end != self._ends[topic])
                self._ends[topic] = end
        return self.unsteady

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def is_steady(grew: Sequence[bool], intervals: int) -> bool:
    """Whether a topic that grew in these intervals, newest last, keeps up."""
    if not intervals:
        return any(grew)
    newest = list(grew)[::-1]
    if len(newest) >= intervals and all(newest[:intervals]):
        return True
    length, spans = SteadyOutputs.SLOW_INTERVALS, SteadyOutputs.SLOW_SPANS
    slow = [newest[start : start + length] for start in range(0, length * spans, length)]
    return all(len(span) == length and any(span) for span in slow)
