"""Whether pipelines process the probe traffic of a run before its load begins, as the ends of their
output topics show.

watch = SteadyOutputs(settings, starts, intervals)    # or ProbeOutputs
while watch.look():
    ...
watch.close()
"""

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence

from confluent_kafka import Consumer, TopicPartition

from schemas.protocol import probe_run_id
from services.runtime.kafka import assigned_consumer, end_offsets
from services.runtime.settings import ServiceSettings

_QUICK = {"fetch.min.bytes": 1, "fetch.wait.max.ms": 200}


class SteadyOutputs:
    """Which output topics keep growing: external proof that a query is active and keeps up, not
    merely started. Probe traffic arrives every second. A topic is steady once it has grown in
    `intervals` consecutive intervals of INTERVAL_S. If micro-batches take longer, because queries
    outnumber the cores, it is steady once it has grown in each of SLOW_SPANS spans of
    SLOW_INTERVALS. With 0 `intervals` a topic is steady at its first output, checked every
    FIRST_INTERVAL_S."""

    INTERVAL_S = 2.0
    FIRST_INTERVAL_S = 0.25
    SLOW_INTERVALS = 5
    SLOW_SPANS = 4

    def __init__(
        self,
        settings: ServiceSettings,
        starts: dict[str, tuple[int, ...]],
        intervals: int,
    ) -> None:
        self._consumer: Consumer = assigned_consumer(settings, "conductor-watch", **_QUICK)
        self._intervals = intervals
        self._interval_s = self.INTERVAL_S if intervals else self.FIRST_INTERVAL_S
        self._looked_s = time.monotonic()
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
        if time.monotonic() - self._looked_s >= self._interval_s:
            self._looked_s = time.monotonic()
            for topic in self._ends if self._intervals else self.unsteady:
                end = end_offsets(self._consumer, topic)
                self._grew[topic].append(end != self._ends[topic])
                self._ends[topic] = end
        return self.unsteady

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


class ProbeOutputs:
    """Which output topics have outputs of the probe traffic of a run, and none but these among the
    newest of each partition. Then pipelines that were kept from the run before have caught up.
    starts: end offsets before the probe traffic."""

    INTERVAL_S = 0.5
    NEWEST = 20  # messages of a partition
    TIMEOUT_S = 1.0  # to read them; markers of transactions among them are not delivered

    def __init__(
        self, settings: ServiceSettings, starts: dict[str, tuple[int, ...]], run_id: str
    ) -> None:
        self._consumer: Consumer = assigned_consumer(settings, "conductor-watch", **_QUICK)
        self._run_id = probe_run_id(run_id).encode()  # as it is in Avro and in JSON
        self._awaited = dict(starts)
        self._looked_s = -math.inf

    @property
    def unsteady(self) -> list[str]:
        """Topics of which this is not known, sorted."""
        return sorted(self._awaited)

    def look(self) -> list[str]:
        """Check again if an interval is over; returns the topics of which it is not known."""
        if self._awaited and time.monotonic() - self._looked_s >= self.INTERVAL_S:
            self._looked_s = time.monotonic()
            newest = dict(each for topic in self._awaited for each in self._newest(topic))
            if newest:
                self._read(newest)
        return self.unsteady

    def _newest(self, topic: str) -> Iterator[tuple[TopicPartition, int]]:
        """The newest messages, and how many, of each partition that has any since the start."""
        ends = end_offsets(self._consumer, topic)
        for partition, (start, end) in enumerate(zip(self._awaited[topic], ends, strict=True)):
            if end > start:
                first = max(start, end - self.NEWEST)
                yield TopicPartition(topic, partition, first), end - first

    def _read(self, newest: dict[TopicPartition, int]) -> None:
        self._consumer.assign([*newest])
        unread = {(each.topic, each.partition) for each in newest}
        others: set[str] = set()
        for message in self._consumer.consume(sum(newest.values()), self.TIMEOUT_S):
            unread.discard((message.topic(), message.partition()))
            if self._run_id not in (message.value() or b""):
                others.add(message.topic())
        not_yet = others | {topic for topic, _partition in unread}
        for topic in {each.topic for each in newest} - not_yet:
            del self._awaited[topic]

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
