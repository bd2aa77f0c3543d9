"""Kafka clients that record their calls."""

from types import SimpleNamespace
from typing import Any

from schemas import catalogue, codec


class Client:
    """A consumer whose topics have one partition and seven records. assigned: topic, partition and
    offset; asked: number of offset queries."""

    def __init__(self) -> None:
        self.assigned: list[tuple[str, int, int]] = []
        self.asked = 0
        self.closed = False

    @classmethod
    def of(cls, clients: list["Client"]) -> "Client":
        """A new client, added to the list."""
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


class Message:
    """A message of `control.runs` with this value and key, at offset 7."""

    def __init__(self, value: bytes | None, key: bytes | None = None) -> None:
        self._value, self._key = value, key

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return self._key

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return catalogue.CONTROL

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7


class Kept:
    """A producer that stores its records: topic, decoded record, key."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any], bytes]] = []

    def produce(self, topic: str, value: bytes, key: bytes, **_options: Any) -> None:
        self.sent.append((topic, codec.decode(value)[1], key))

    def poll(self, _timeout_s: float) -> int:
        return 0

    def flush(self, _timeout_s: float) -> int:
        return 0
