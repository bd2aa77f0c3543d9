"""The bus, as the console reads it."""

import pytest

from services.console import bus
from services.runtime.settings import ServiceSettings
from tests.unit.kafka_clients import Client

pytestmark = pytest.mark.unit


def test_a_client_that_fetches_is_asked_for_no_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker would answer each question only when the fetch before it is over."""
    clients: list[Client] = []
    monkeypatch.setattr(bus, "assigned_consumer", lambda *_, **__: Client.of(clients))
    found = bus.Follower(ServiceSettings(), ["results.lifecycle"])
    assert found.ends(["results.lifecycle"]) == {("results.lifecycle", 0): 7}
    reading, asking = clients
    assert (reading.assigned, reading.asked) == ([("results.lifecycle", 0, 7)], 0)
    assert (asking.assigned, asking.asked) == ([], 2)
    found.close()
    assert [client.closed for client in clients] == [True, True]
