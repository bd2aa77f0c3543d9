"""Reads the topics of a run in batches, with the broker's time, and says how far it has read."""

from dataclasses import dataclass

import numpy as np
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from schemas import catalogue
from services.evaluator.evaluation import Batch
from services.runtime.clock import now_ms
from services.runtime.kafka import KAFKA_TIMEOUT_S, KafkaUnavailableError, watermarks


class TimestampError(RuntimeError):
    """A topic does not carry LogAppendTime, so nothing can be measured."""


@dataclass(frozen=True)
class MessageBatch:
    """Records of one topic as read; `messages` are kept for dead letters."""

    batch: Batch
    messages: list[KafkaMessage]


@dataclass(frozen=True)
class Frontier:
    """All records appended before these times (epoch ms) have been read; positions: the next
    offset of every input partition."""

    input_ms: int
    output_ms: int
    positions: dict[str, tuple[int, ...]]


class Reader:
    """Reads every topic of a run from the plan's offsets on. Not thread-safe: one thread at a
    time, and `frontier` says what the batches returned before it contain."""

    def __init__(self, consumer: Consumer, start_offsets: dict[str, tuple[int, ...]]) -> None:
        self._consumer = consumer
        self._partitions = [
            TopicPartition(topic, partition, offset)
            for topic, offsets in start_offsets.items()
            for partition, offset in enumerate(offsets)
        ]
        self._next = {(one.topic, one.partition): one.offset for one in self._partitions}
        self._read_ms = dict.fromkeys(self._next, 0)
        consumer.assign(self._partitions)

    def read(self, records: int, timeout_s: float) -> list[MessageBatch]:
        """The next records, by topic, inputs first. Raises TimestampError, KafkaException."""
        by_topic: dict[str, list[KafkaMessage]] = {}
        for message in self._consumer.consume(records, timeout_s):
            if message.error():
                if message.error().fatal() or not message.error().retriable():
                    raise KafkaException(message.error())
                continue
            by_topic.setdefault(message.topic(), []).append(message)
        ordered = sorted(by_topic, key=lambda topic: topic not in catalogue.INPUTS)
        return [self._batch(topic, by_topic[topic]) for topic in ordered]

    def frontier(self) -> Frontier:
        """How far has been read, by asking the broker for the end of every partition."""
        reached: dict[tuple[str, int], int] = {}
        for one in self._partitions:
            key = (one.topic, one.partition)
            asked_ms = now_ms()
            _low, high = watermarks(self._consumer, one)
            reached[key] = asked_ms if self._next[key] >= high else self._read_ms[key]
        inputs = [ms for (topic, _), ms in reached.items() if topic in catalogue.INPUTS]
        outputs = [ms for (topic, _), ms in reached.items() if topic not in catalogue.INPUTS]
        return Frontier(min(inputs), min(outputs, default=min(inputs)), self._positions())

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()

    def _positions(self) -> dict[str, tuple[int, ...]]:
        positions: dict[str, tuple[int, ...]] = {}
        for (topic, _partition), offset in self._next.items():
            if topic in catalogue.INPUTS:
                positions[topic] = (*positions.get(topic, ()), offset)
        return positions

    def _batch(self, topic: str, messages: list[KafkaMessage]) -> MessageBatch:
        appended_ms = np.empty(len(messages), np.int64)
        for place, message in enumerate(messages):
            kind, appended_ms[place] = message.timestamp()
            if kind != TIMESTAMP_LOG_APPEND_TIME:
                raise TimestampError(f"topic {topic} does not use LogAppendTime")
        last: dict[int, int] = {message.partition(): i for i, message in enumerate(messages)}
        for partition, place in last.items():
            self._next[topic, partition] = messages[place].offset() + 1
            self._read_ms[topic, partition] = int(appended_ms[place])
        values = [message.value() for message in messages]
        return MessageBatch(Batch(topic, appended_ms, values), messages)


def check_topics(consumer: Consumer, topics: tuple[str, ...]) -> None:
    """Refuse to measure unless one broker leads every partition of all topics.

    Raises TimestampError when several do, KafkaUnavailableError when a topic is not there.
    """
    known = consumer.list_topics(timeout=KAFKA_TIMEOUT_S).topics
    gone = [topic for topic in topics if topic not in known]
    if gone:
        raise KafkaUnavailableError(f"topic {gone[0]} is not there")
    leaders = {p.leader for topic in topics for p in known[topic].partitions.values()}
    if len(leaders) != 1:
        raise TimestampError(
            f"brokers {sorted(leaders)} lead the partitions of this run; one must lead all, "
            "because latencies are differences of one clock"
        )
