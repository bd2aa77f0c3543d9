"""Reads back what the bus has said of a run: for a conductor that was started again."""

from typing import Any

from confluent_kafka import TopicPartition

from schemas import catalogue, codec
from services.conductor.past import is_step_of
from services.conductor.settings import ConductorSettings
from services.runtime.kafka import KAFKA_TIMEOUT_S, assigned_consumer, end_offsets

TOPICS = (catalogue.CONTROL, catalogue.LIFECYCLE, catalogue.CONCLUSIONS)  # of one partition each
CLOCKS_APART_MS = 60_000
MOST_AT_ONCE = 2_000


def read_back(
    settings: ConductorSettings, run_id: str, since_ms: int
) -> list[tuple[str, dict[str, Any]]]:
    """Commands, lifecycle and conclusions of a run and of the steps of its search, by topic, in the
    order of each.

    since_ms: when it began, by this machine's clock; earlier ones are not looked for.
    """
    consumer = assigned_consumer(settings, "conductor-history", **{"fetch.min.bytes": 1})
    try:
        ends = {topic: end_offsets(consumer, topic)[0] for topic in TOPICS}
        from_ms = max(0, since_ms - CLOCKS_APART_MS)
        begins = consumer.offsets_for_times(
            [TopicPartition(topic, 0, from_ms) for topic in TOPICS], timeout=KAFKA_TIMEOUT_S
        )
        # Where nothing was published since then the offset is negative.
        left = {one.topic: one.offset for one in begins if 0 <= one.offset < ends[one.topic]}
        consumer.assign([TopicPartition(topic, 0, offset) for topic, offset in left.items()])
        found = []
        while any(offset < ends[topic] for topic, offset in left.items()):
            for message in consumer.consume(MOST_AT_ONCE, 0.5):
                if message.error():
                    continue
                left[message.topic()] = message.offset() + 1
                record = _decoded(message.value())
                if record and (record["run_id"] == run_id or is_step_of(record["run_id"], run_id)):
                    found.append((message.topic(), record))
        return found
    finally:
        consumer.close()


def _decoded(value: bytes | None) -> dict[str, Any] | None:
    try:
        return codec.decode(value)[1]
    except codec.DecodeError:
        return None  # a dead letter since it was read first
