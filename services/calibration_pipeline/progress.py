"""Progress of the calibration once a second: rows read and lag."""

import time
from collections import Counter
from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, TopicPartition

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
        _first, end = consumer.get_watermark_offsets(
            TopicPartition(at.topic, at.partition), cached=True
        )
        if at.offset >= 0 and end >= 0:  # both are negative before the first fetch
            lags[at.topic] += max(0, end - at.offset)
    return lags


def _sum(counts: Counter[str], topics: Iterable[str]) -> int:
    return sum(counts[topic] for topic in topics)
