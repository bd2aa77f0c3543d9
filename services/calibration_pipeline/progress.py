"""What the calibration has read and what it has not, once a second."""

import time
from collections import Counter
from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, TopicPartition

from schemas.engine import EnginePlan
from services.runtime.program import Voice

INTERVAL_S = 1.0


class Progress:
    """Says a line for each stage: rows of its inputs since the last one, and those not read yet."""

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
        """A record of this topic was read."""
        self._read[topic] += 1

    def say(self) -> None:
        """Say the lines, if a second has passed."""
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
    """Records by topic that a consumer has not read yet, as the broker's newest answers say."""
    lags: Counter[str] = Counter()
    for at in consumer.position(consumer.assignment()):
        _first, end = consumer.get_watermark_offsets(
            TopicPartition(at.topic, at.partition), cached=True
        )
        if at.offset >= 0 and end >= 0:  # both are negative before there was anything to read
            lags[at.topic] += max(0, end - at.offset)
    return lags


def _sum(counts: Counter[str], topics: Iterable[str]) -> int:
    return sum(counts[topic] for topic in topics)
