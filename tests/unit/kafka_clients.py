"""A client of Kafka that notes what is asked of it: topics have one partition, seven records."""

from types import SimpleNamespace
from typing import Any


class Client:
    """assigned: topic, partition and offset; asked: how often for offsets."""

    def __init__(self) -> None:
        self.assigned: list[tuple[str, int, int]] = []
        self.asked = 0
        self.closed = False

    @classmethod
    def of(cls, clients: list["Client"]) -> "Client":
        """A new one, which is noted."""
        clients.append(cls())
        return clients[-1]

    def assign(self, partitions: list[Any]) -> None:
        self.assigned = [(one.topic, one.partition, one.offset) for one in partitions]

    def list_topics(self, topic: str, timeout: float) -> Any:
        found = SimpleNamespace(error=None, partitions={0: None})
        return SimpleNamespace(topics={topic: found})

    def get_watermark_offsets(self, _partition: Any, timeout: float) -> tuple[int, int]:
        self.asked += 1
        return 0, 7

    def consume(self, _count: int, _timeout_s: float) -> list[Any]:
        return []

    def close(self) -> None:
        self.closed = True
