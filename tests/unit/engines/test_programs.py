"""Programs of engines while the broker does not answer, or takes no more."""

import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaException
from stages.reading import Reading

from tests.unit.engines.rows import program

pytestmark = pytest.mark.unit


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


class EndedError(Exception):
    """Ends the thread of an engine."""


def test_pathway_goes_on_telling_its_progress_while_the_broker_is_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = SimpleNamespace(Table=None, Json=None, __version__="1")
    monkeypatch.setitem(sys.modules, "pathway", table)
    engine = program("engines/pathway")
    place = SimpleNamespace(topic="t", partition=0)
    member = SimpleNamespace(assignment=SimpleNamespace(topic_partitions=[place]))
    group = Mock(side_effect=[KafkaException(), TimeoutError(), SimpleNamespace(members=[member])])
    admin = Mock()
    admin.describe_consumer_groups.return_value = {"g": SimpleNamespace(result=group)}
    consumer = Mock()
    consumer.get_watermark_offsets.side_effect = [KafkaException(), (0, 9)]
    progress = Mock()
    progress.tell.side_effect = [None, EndedError]
    said = Mock()
    for name, value in (
        *(("AdminClient", Mock(return_value=admin)), ("Consumer", Mock(return_value=consumer))),
        *(("Progress", Mock(return_value=progress)), ("say", said), ("LOOK_S", 0)),
    ):
        monkeypatch.setattr(engine, name, value)
    plan = SimpleNamespace(kafka={}, group="g", partitions=[("t", 0, 5)])
    reading = Reading({"t": [5]})
    with pytest.raises(EndedError):
        engine.watch(plan, reading)
    said.assert_called_once_with(event="ready", detail={"pathway": "1"})
    assert reading.lag == 4
