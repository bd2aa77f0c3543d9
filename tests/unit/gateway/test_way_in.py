"""The gateway while Kafka accepts nothing."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from schemas.frame import Frame, encode
from services.gateway.receivers import Arrival
from services.gateway.way_in import WayIn

pytestmark = pytest.mark.unit

TAG = b"tag of r"


class Sender:
    """A receiver that gets one frame."""

    turned_away = 0

    def __init__(self) -> None:
        self.frames = [encode(Frame(TAG, 0, 0, 0, time.time_ns(), b"key", b"value"))]
        self.kept_bounds = threading.Event()

    def receive(self, _timeout_s: float) -> Iterator[Arrival]:
        while self.frames:
            yield self.frames.pop(), time.time_ns()

    def keep_bounds(self) -> None:
        self.kept_bounds.set()

    def close(self) -> None:
        pass


class FullProducer:
    """Accepts nothing."""

    def produce(self, *_record: Any, on_delivery: Any) -> None:
        raise BufferError

    def poll(self, _timeout_s: float) -> None:
        pass

    def flush(self, _timeout_s: float) -> None:
        pass


def test_connections_stay_bounded_where_kafka_takes_no_more() -> None:
    producer: Any = FullProducer()
    sender = Sender()
    way = WayIn(TAG, ["input"], sender, producer, lambda _refusal: None)
    assert sender.kept_bounds.wait(10)
    way.stop()
    assert way.figures["received"] == 1
