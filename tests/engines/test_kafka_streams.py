"""Kafka Streams: both implementations exact in every domain, killed, and in transactions."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from schemas.catalogue import ENGINE_PREFIX
from services.runtime.settings import ServiceSettings
from tests.engines.runs import Runs, runs_of

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

PROCESSORS, DSL = "kafka-streams", "kafka-streams-dsl"
TRAFFIC = ["ingest", "parse", "join", "tumbling", "sliding"]
TRANSACTIONS = """
name = "transactions"
summary = "-"
engine = "kafka-streams"
guarantee = "exactly-once"
commit_interval_ms = 100
store = "rocksdb"
"""


@pytest.fixture(scope="module")
def processors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with runs_of(PROCESSORS, tmp_path_factory.mktemp("kafka-streams"), 21_870) as found:
        yield found


@pytest.fixture(scope="module")
def dsl(processors: Runs) -> Runs:
    return Runs(processors.command, DSL)


def topics_of_engines(runs: Runs) -> list[str]:
    """Topics that engines made for themselves and that are still there."""
    settings = ServiceSettings(data=runs.command.data, base_port=runs.command.base_port)
    admin = AdminClient({"bootstrap.servers": settings.open_bootstrap})
    return [name for name in admin.list_topics(timeout=30).topics if name.startswith(ENGINE_PREFIX)]


def test_processors_publish_every_stage_and_leave_no_topic(processors: Runs) -> None:
    assert processors.exact("traffic") == TRAFFIC
    assert processors.exact("gem_packs") == [
        *("ingest", "parse", "revenue", "conversions", "average", "highest"),
        *("enriched", "offers", "dear", "dear_average"),
    ]
    assert processors.exact("flights") == [
        *("ingest", "parse", "area", "emergencies", "departures", "countries", "cells")
    ]
    assert topics_of_engines(processors) == []


def test_the_dsl_publishes_every_stage_but_those_that_wait_for_event_time(dsl: Runs) -> None:
    assert dsl.exact("traffic") == TRAFFIC
    assert dsl.exact("gem_packs") == [
        *("ingest", "parse", "conversions", "enriched", "offers", "dear")
    ]
    assert dsl.exact("flights") == ["ingest", "parse", "area", "emergencies", "departures"]


def test_transactions_and_rocksdb_are_as_exact(processors: Runs) -> None:
    file = processors.command.data / "transactions.toml"
    file.write_text(TRANSACTIONS)
    assert Runs(processors.command, "transactions", str(file)).exact("traffic") == TRAFFIC


@pytest.mark.parametrize("domain", ["traffic", "gem_packs"])
def test_killed_processors_go_on_from_their_changelogs(processors: Runs, domain: str) -> None:
    assert processors.killed(domain) == {"missing": 0, "wrong": 0, "unexpected": 0}


def test_the_killed_dsl_goes_on_from_its_changelogs(dsl: Runs) -> None:
    assert dsl.killed("traffic") == {"missing": 0, "wrong": 0, "unexpected": 0}


def test_a_value_that_is_no_record_becomes_a_dead_letter(processors: Runs) -> None:
    told, planted = processors.dead_letters()
    assert planted.total() > 5
    assert told == planted


def test_the_dsl_too_tells_a_value_that_is_no_record(dsl: Runs) -> None:
    told, planted = dsl.dead_letters()
    assert planted.total() > 5
    assert told == planted
