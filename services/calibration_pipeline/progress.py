"""How far the calibration has read, and its progress once a second: rows read and lag."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from confluent_kafka import Consumer, Message, TopicPartition

from schemas.engine import EnginePlan
from services.runtime.program import Voice

INTERVAL_S = 1.0


class Progress:
    """Reports for each stage the input rows since the last report, and the lag."""

    def __init__(
        self,
        plan: EnginePlan,
        voice: Voice,
        consumer: Consumer,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topics = {
            stage: [one.topic for one in plan.domain.inputs_of(stage)] for stage in plan.outputs
        }
        self._voice, self._consumer, self._clock_s = voice, consumer, clock_s
        self._said_s = clock_s()
        self._read: Counter[str] = Counter()

    def count(self, topic: str) -> None:
        """Count a record of this topic."""
        self._read[topic] += 1

    def say(self) -> None:
        """Write the lines if a second has passed."""
        if self._clock_s() - self._said_s < INTERVAL_S:
            return
        self._said_s = self._clock_s()
        lags = lags_of(self._consumer)
        for stage, topics in self._topics.items():
            self._voice.progress(
                stage=stage,
                input_rows=_sum(self._read, topics),
                lag_records=_sum(lags, topics),
            )
        self._read.clear()


def lags_of(consumer: Consumer) -> Counter[str]:
    """Lag in records by topic, from the broker's latest responses."""
    lags: Counter[str] = Counter()
    for at in consumer.position(consumer.assignment()):
        end = end_of(consumer, at.topic, at.partition)
        if at.offset >= 0 and end >= 0:  # both are negative before the first fetch
            lags[at.topic] += max(0, end - at.offset)
    return lags


def end_of(consumer: Consumer, topic: str, number: int) -> int:
    """End offset of a partition, from the broker's latest response; negative before the first."""
    at = TopicPartition(topic, number)
    end: int = consumer.get_watermark_offsets(at, cached=True)[1]
    return end


class Reading:
    """The next offset of each partition, and when its last record was appended. start_offsets: of
    the partitions of each topic."""

    def __init__(self, consumer: Consumer, start_offsets: Mapping[str, Sequence[int]]) -> None:
        self._consumer = consumer
        self._read = {
            (topic, number): (offset, 0)
            for topic, offsets in start_offsets.items()
            for number, offset in enumerate(offsets)
        }

    def read(self, message: Message) -> None:
        """Note a message as read."""
        place = message.topic(), message.partition()
        self._read[place] = message.offset() + 1, message.timestamp()[1]

    def reached_ms(self, now_ms: float) -> float:
        """All records appended until this time have been read, according to the broker's latest
        responses; 0 before the first response for a partition."""
        behind = [
            appended_ms
            for place, (offset, appended_ms) in self._read.items()
            if not 0 <= end_of(self._consumer, *place) <= offset
        ]
        return min([now_ms, *behind])


def _sum(counts: Counter[str], topics: Iterable[str]) -> int:
    return sum(counts[topic] for topic in topics)
