"""The bus as read by the conductor and the console."""

from typing import Any
from unittest.mock import Mock

import pytest

from schemas import codec
from services.runtime.events import Bus
from services.runtime.settings import ServiceSettings
from tests.unit.kafka_clients import Client
from tests.unit.requests import a_lifecycle_event

pytestmark = pytest.mark.unit
TOPICS = ["results.lifecycle"]


def test_a_client_that_fetches_is_asked_for_no_offsets() -> None:
    """The broker would respond to each offset query only after the previous fetch."""
    clients: list[Client] = []

    def open_consumer(*_: object, **__: object) -> Client:
        return Client.of(clients)

    found = Bus(ServiceSettings(), "conductor", TOPICS, open_consumer=open_consumer)
    assert list(found.rest()) == []
    assert found.ends(["results.lifecycle"]) == {("results.lifecycle", 0): 7}
    reading, asking = clients
    assert (reading.assigned, reading.asked) == ([("results.lifecycle", 0, 7)], 0)
    assert (asking.assigned, asking.asked) == ([], 3)
    found.close()
    assert [client.closed for client in clients] == [True, True]


def test_little_is_buffered_of_a_bus_that_is_not_read() -> None:
    options: list[dict[str, Any]] = []

    def consumer(*_: object, **given: Any) -> Client:
        options.append(given)
        return Client()

    Bus(ServiceSettings(), "conductor", TOPICS, open_consumer=consumer)
    assert options[0]["queued.max.messages.kbytes"] == 1024


class Spoken(Client):
    """A client with one event."""

    def __init__(self, value: bytes) -> None:
        super().__init__()
        self._value = value

    def consume(self, _count: int, _timeout_s: float) -> list[Any]:
        message = Mock()
        message.error.return_value = None
        message.value.return_value = self._value
        message.topic.return_value = "results.lifecycle"
        message.partition.return_value, message.offset.return_value = 0, 7
        return [message]


@pytest.mark.parametrize(("detail", "kept"), [('{"reason": "no water"}', 0), ("{}", 1)])
def test_an_event_that_does_not_say_what_it_must_is_kept_as_a_dead_letter(
    detail: str, kept: int
) -> None:
    value = codec.encode("results_lifecycle", a_lifecycle_event("failed", detail))

    def open_consumer(*_: object, **__: object) -> Client:
        return Spoken(value)

    events = Mock()
    found = Bus(ServiceSettings(), "conductor", TOPICS, events, open_consumer).poll(0)
    assert len(found) == 1 - kept
    reasons = [call.args[0].reason for call in events.dead_letter.call_args_list]
    assert reasons == ["detail.reason: It is missing"] * kept
