"""The main loop of services that follow commands."""

import threading

import pytest

from schemas import catalogue, codec
from schemas.commands import Malformed, Stop
from services.runtime.events import Commands, Events
from services.runtime.serving import Service
from tests.unit.kafka_clients import Kept, Message

pytestmark = pytest.mark.unit


def command(number, name, body):
    head = {"command_id": number, "run_id": "r", "issued_at": 1, "producer": "p"}
    return codec.encode("control_command", head | {"command": name, "body": body})


class Consumer:
    """A consumer with two commands, the first malformed."""

    def __init__(self):
        bodies = (("1", "start", '{"phases": {}}'), ("2", "stop", '{"reason": "over"}'))
        self._left = [Message(command(*one)) for one in bodies]

    def consume(self, count, _timeout_s):
        return [self._left.pop(0) for _ in self._left[:count]]


def test_a_malformed_command_becomes_a_dead_letter_and_the_next_one_is_handled():
    producer, stop, handled = Kept(), threading.Event(), []
    events = Events(producer, "tests", lambda: 5)

    def handle_command(command):
        handled.append(command)
        if isinstance(command, Stop):
            stop.set()

    service = Service(events, Commands(Consumer(), events), stop)
    service.follow(handle_command, lambda: None, lambda: 0)
    reason = "load_start_ms: It is missing"
    assert handled == [
        Malformed("start", "r", "1", reason),
        Stop(run_id="r", command_id="2", issued_at=1, producer="p", reason="over"),
    ]
    ((topic, letter, _key),) = producer.sent
    assert (topic, letter["value"], letter["reason"]) == (
        catalogue.DEAD_LETTER,
        command("1", "start", '{"phases": {}}'),
        reason,
    )


def test_a_defect_of_a_service_ends_it():
    events = Events(Kept(), "tests", lambda: 5)
    service = Service(events, Commands(Consumer(), events), threading.Event())
    with pytest.raises(ZeroDivisionError):
        service.follow(lambda _command: 1 / 0, lambda: None, lambda: 0)
