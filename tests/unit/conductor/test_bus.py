"""The bus, as the conductor reads it."""

from typing import Any

import pytest

from services.conductor import bus
from services.runtime.settings import ServiceSettings
from tests.unit.kafka_clients import Client

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
