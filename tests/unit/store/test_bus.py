"""How long the store waits for records before it inserts them."""

from typing import Any

import pytest

from schemas import catalogue
from services.store.projection import projector
from services.store.projection.projector import ResultsReader

pytestmark = pytest.mark.unit


class Message:
    def __init__(self, topic: str) -> None:
        self._topic = topic

    def topic(self) -> str:
        return self._topic

    def error(self) -> None:
        return None


class Consumer:
    """Delivers the records of one topic with each call."""

    def __init__(self, *topics: str) -> None:
        self._topics = list(topics)

    def consume(self, _count: int, _timeout_s: float) -> list[Message]:
        return [Message(self._topics.pop(0))]


@pytest.mark.parametrize(
    ("topics", "polled"),
    [
        ((catalogue.LATENCY, catalogue.CONCLUSIONS, catalogue.LATENCY), 2),
        ((catalogue.LATENCY, catalogue.LATENCY, catalogue.LATENCY), 3),
    ],
)
def test_a_batch_ends_at_a_conclusion(
    monkeypatch: pytest.MonkeyPatch, topics: tuple[str, ...], polled: int
) -> None:
    monkeypatch.setattr(projector, "Message", Message)
    monkeypatch.setattr(projector, "POLL_RECORDS", 3)
    consumer: Any = Consumer(*topics)
    assert len(ResultsReader(consumer).poll(60, lambda: False)) == polled
