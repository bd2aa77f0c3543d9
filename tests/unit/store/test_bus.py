"""How long the store waits for records before it inserts them."""

from typing import Any

import pytest
from confluent_kafka import Message

from schemas import catalogue
from services.store.projection.projector import ResultsReader

pytestmark = pytest.mark.unit


class Consumer:
    """Delivers the records of one topic with each call."""

    def __init__(self, *topics: str) -> None:
        self._topics = list(topics)

    def consume(self, _count: int, _timeout_s: float) -> list[Message]:
        return [Message(topic=self._topics.pop(0))]


@pytest.mark.parametrize(
    ("topics", "polled"),
    [
        ((catalogue.LATENCY, catalogue.CONCLUSIONS, catalogue.LATENCY), 2),
        ((catalogue.LATENCY, catalogue.LATENCY, catalogue.LATENCY), 3),
    ],
)
def test_a_batch_ends_at_a_conclusion(topics: tuple[str, ...], polled: int) -> None:
    consumer: Any = Consumer(*topics)
    assert len(ResultsReader(consumer).poll(60, lambda: False, most=3)) == polled
