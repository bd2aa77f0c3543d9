"""The gateway while Kafka accepts nothing."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from schemas.frame import Frame, encode
from services.gateway.way_in import FLUSH_S, WayIn
from services.runtime.frame_receivers import Arrival

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
    """Accepts nothing until it is told that it has room."""

    def __init__(self) -> None:
        self.has_room = threading.Event()
        self.values: list[bytes] = []

    def produce(self, _topic: str, value: bytes, _key: bytes, on_delivery: Any) -> None:
        if not self.has_room.is_set():
            raise BufferError
        self.values.append(value)

    def poll(self, timeout_s: float) -> None:
        self.has_room.wait(timeout_s)

    def flush(self, _timeout_s: float) -> None:
        pass


def waiting(producer: Any, flush_s: float = FLUSH_S) -> WayIn:
    """A way in with a frame that the producer does not accept."""
    sender: Any = Sender()
    way = WayIn(TAG, ["input"], sender, producer, lambda _refusal: None, flush_s=flush_s)
    assert sender.kept_bounds.wait(10)
    return way


def test_a_frame_that_kafka_never_takes_is_counted_at_the_stop() -> None:
    way = waiting(FullProducer(), flush_s=1)  # its connections stay bounded
    way.stop()
    assert (way.figures["received"], way.figures["not_appended"]) == (1, 1)


def test_a_frame_that_waits_at_the_stop_is_appended_once_there_is_room() -> None:
    producer = FullProducer()
    way = waiting(producer)
    threading.Timer(0.1, producer.has_room.set).start()
    way.stop()
    assert (producer.values, way.figures["not_appended"]) == ([b"value"], 0)
