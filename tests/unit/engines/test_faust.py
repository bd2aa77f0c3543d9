"""How the Faust engine authenticates to Kafka."""

import asyncio
import importlib.util
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from services.runtime.settings import ROOT

pytestmark = pytest.mark.unit

LOGIN = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "scram-sha-256",
    "sasl.username": "me",
    "sasl.password": "secret",
}


@pytest.fixture
def engine() -> ModuleType:
    """The engine's program."""
    path = ROOT / "engines" / "faust" / "engine.py"
    spec = importlib.util.spec_from_file_location("faust_engine", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Consumer:
    """A group without offsets. told: its constructor arguments."""

    told: dict[str, Any]

    def __init__(self, **settings: Any) -> None:
        Consumer.told = settings

    def assign(self, _places: Any) -> None:
        pass

    async def start(self) -> None:
        pass

    async def committed(self, _place: Any) -> int:
        return 0

    async def stop(self) -> None:
        pass


def test_the_offsets_to_begin_at_are_committed_with_the_login_of_the_plan(
    engine: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "AIOKafkaConsumer", Consumer)
    plan = SimpleNamespace(bootstrap="-", group="g", partitions=[("t", 0, 5)], kafka=LOGIN)
    asyncio.run(engine.begin(plan))
    told = dict(Consumer.told)
    assert told.pop("ssl_context") is not None
    assert told == {
        "bootstrap_servers": "-",
        "group_id": "g",
        "enable_auto_commit": False,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "me",
        "sasl_plain_password": "secret",
    }
    assert engine.security({}) == {"security_protocol": "PLAINTEXT"}


def test_faust_itself_has_the_same_login(engine: ModuleType) -> None:
    found = engine.credentials(LOGIN)
    assert (found.username, found.password, found.mechanism.value) == (
        "me",
        "secret",
        "SCRAM-SHA-256",
    )
    assert found.ssl_context is not None
    assert engine.credentials({}) is None
