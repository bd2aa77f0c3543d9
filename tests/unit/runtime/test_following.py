"""A command that cannot be executed becomes a dead letter, and the next one is executed."""

import threading

import pytest

from schemas import catalogue, codec
from services.runtime.events import Commands, Events
from services.runtime.serving import Service
from tests.unit.kafka_clients import Kept, Message

pytestmark = pytest.mark.unit


def command(number):
    record = {"command_id": str(number), "run_id": "r", "issued_at": 1, "producer": "p"}
    return codec.encode("control_command", record | {"command": "stop", "body": "{}"})


class Consumer:
    """A consumer with two commands."""

    def __init__(self):
        self._left = [Message(command(number)) for number in (1, 2)]

    def consume(self, count, _timeout_s):
        return [self._left.pop(0) for _ in self._left[:count]]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyError("x"), OverflowError("too large")])
def test_a_command_that_cannot_be_carried_out_stops_no_service(error):
    producer, stop, obeyed = Kept(), threading.Event(), []
    events = Events(producer, "tests", lambda: 5)

    def handle_command(found):
        if found["command_id"] == "1":
            raise error
        obeyed.append(found["command_id"])
        stop.set()

    service = Service(events, Commands(Consumer(), events), stop)
    service.follow(handle_command, lambda: None, lambda: 0)
    assert obeyed == ["2"]
    ((topic, letter, _key),) = producer.sent
    assert (topic, letter["value"]) == (catalogue.DEAD_LETTER, command(1))
    assert letter["reason"].startswith("cannot be carried out: ")
