"""Programs of engines while the broker takes no more."""

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest

from services.runtime.settings import ROOT

pytestmark = pytest.mark.unit


def program(folder: str) -> Any:
    """The program of an engine."""
    spec = importlib.util.spec_from_file_location("program", ROOT / folder / "engine.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FullProducer:
    """Its queue has room for a record once it was polled for some time."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.room = 0

    def produce(self, _topic: str, value: bytes, _key: bytes) -> None:
        if not self.room:
            raise BufferError
        self.room -= 1
        self.values.append(value)

    def poll(self, timeout_s: float) -> None:
        self.room += timeout_s > 0


def test_the_toy_engine_waits_for_room_in_the_queue_of_its_producer() -> None:
    engine = SimpleNamespace(producer=FullProducer())
    messages = [("output", b"key", value) for value in (b"1", b"2", b"3")]
    program("examples/toy_engine").Engine.write(engine, messages)
    assert engine.producer.values == [b"1", b"2", b"3"]
