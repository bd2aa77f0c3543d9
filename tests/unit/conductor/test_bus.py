"""The bus, as the conductor reads it."""

from typing import Any
from unittest.mock import Mock

import pytest

from schemas import codec
from services.conductor import bus
from services.runtime.settings import ServiceSettings
from tests.unit.kafka_clients import Client
from tests.unit.requests import a_lifecycle_event

pytestmark = pytest.mark.unit


def test_a_client_that_fetches_is_asked_for_no_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker would answer each question only when the fetch before it is over."""
    clients: list[Client] = []
    monkeypatch.setattr(bus, "assigned_consumer", lambda *_, **__: Client.of(clients))
    events: Any = None  # nothing is decoded here
    found = bus.Bus(ServiceSettings(), ["results.lifecycle"], events)
    assert list(found.rest()) == []
    reading, asking = clients
    assert (reading.assigned, reading.asked) == ([("results.lifecycle", 0, 7)], 0)
    assert (asking.assigned, asking.asked) == ([], 2)
    found.close()
    assert [client.closed for client in clients] == [True, True]


@pytest.mark.parametrize(
    ("grew", "steady"),
    [
        ("", False),
        ("gg", False),
        ("ggg", True),
        ("..ggg", True),
        ("ggg.", False),
        # Once in every ten seconds for forty, however its micro-batches fall.
        ("g....g....g....g....", True),
        ("....gg.........g....g", False),
        ("....gg....g.......g.", True),
        (".....g....g....g....g", True),
        ("g....g....g.........", False),
        ("..g....g....g...", False),
    ],
)
def test_an_output_is_steady_when_it_grows_all_the_time_or_slowly_for_longer(
    grew: str, steady: bool
) -> None:
    assert bus.is_steady([each == "g" for each in grew], 3) is steady


class Spoken(Client):
    """A client that has one event."""

    value = b""

    def consume(self, _count: int, _timeout_s: float) -> list[Any]:
        message = Mock()
        message.error.return_value = None
        message.value.return_value = self.value
        message.topic.return_value = "results.lifecycle"
        message.partition.return_value, message.offset.return_value = 0, 7
        return [message]


@pytest.mark.parametrize(("detail", "kept"), [('{"reason": "no water"}', 0), ("{}", 1)])
def test_an_event_that_does_not_say_what_it_must_is_kept_as_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch, detail: str, kept: int
) -> None:
    monkeypatch.setattr(bus, "assigned_consumer", lambda *_, **__: Spoken())
    event = a_lifecycle_event("failed", detail)
    monkeypatch.setattr(Spoken, "value", codec.encode("results_lifecycle", event))
    events = Mock()
    found = bus.Bus(ServiceSettings(), ["results.lifecycle"], events).poll(0)
    assert len(found) == 1 - kept
    reasons = [call.args[1] for call in events.dead_letter.call_args_list]
    assert reasons == ["detail.reason: Field required"] * kept


def test_nothing_is_asked_of_pipelines_that_are_not_there_yet() -> None:
    assert bus.is_steady([], 0)
