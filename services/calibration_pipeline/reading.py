"""The time up to which the calibration has read its inputs."""

from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, Message, TopicPartition


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
            if not 0 <= self._end(*place) <= offset
        ]
        return min([now_ms, *behind])

    def _end(self, topic: str, number: int) -> int:
        at = TopicPartition(topic, number)
        end: int = self._consumer.get_watermark_offsets(at, cached=True)[1]
        return end
