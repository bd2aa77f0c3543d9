"""How the Faust engine authenticates to Kafka."""

import asyncio
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.unit.engines.rows import program

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
    found: ModuleType = program("engines/faust")
    return found


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


def test_a_partition_whose_end_is_not_known_may_have_unread_records(engine: ModuleType) -> None:
    place, reached = engine.TP("t", 0), []
    reading = engine.Reading({"t": [0]})

    async def write(_messages: Any) -> None:
        pass

    def program(end: int | None) -> Any:
        consumer = SimpleNamespace(assignment=lambda: {place}, highwater=lambda _place: end)
        completed = SimpleNamespace(is_set=lambda: True)
        tables = SimpleNamespace(recovery=SimpleNamespace(completed=completed))
        return SimpleNamespace(
            app=SimpleNamespace(consumer=consumer, tables=tables),
            plan=SimpleNamespace(partitions=[("t", 0, 0)]),
            reading=reading,
            is_ready=True,
            flow=SimpleNamespace(tick=reached.append),
            progress=SimpleNamespace(tell=lambda: None),
            write=write,
        )

    for end in (None, 0):
        asyncio.run(engine.Program.tick(program(end)))
    assert reached[0] == 0 < reached[1]
