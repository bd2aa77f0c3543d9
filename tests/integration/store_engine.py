"""An engine in the test process, and functions that write events into its tables.

A process can have only one engine, which starts slowly, so the tests of a module share one.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from schemas import catalogue, codec
from services.runtime import clickhouse
from services.store.engine import Query, SqlEngine
from services.store.engines.chdb_engine import ChdbEngine
from services.store.engines.schema import ROLLUPS, ddl_statements
from services.store.projection.rebuild import drop_statements
from services.store.projection.rows import ConsumedRecord, blocks, translate
from services.store.settings import StoreSettings
from services.store.tables import POSITIONS, TABLES
from tests.unit.store.test_rows import latency_event


@pytest.fixture(scope="module")
def engine_folder(tmp_path_factory):
    """Folder of this module's engine."""
    return tmp_path_factory.mktemp("engine")


@pytest.fixture(scope="module")
def module_engine(engine_folder):
    """An engine in this process with the DDL applied."""
    found = ChdbEngine(StoreSettings(data=engine_folder))
    found.execute(ddl_statements())
    yield found
    found.close()


@pytest.fixture
def engine(module_engine):
    """The engine with empty tables."""
    names = [POSITIONS, *(table.name for table in TABLES.values())]
    names += [rollup.name for rollups in ROLLUPS.values() for rollup in rollups]
    module_engine.execute(f"TRUNCATE TABLE tidegauge.{name}" for name in names)
    return module_engine


@pytest.fixture
def engine_to_alter(engine):
    """The engine with empty tables, for tests that alter them. They are recreated afterwards."""
    yield engine
    engine.execute([*drop_statements(), *ddl_statements()])


def store_in_process(engine: SqlEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every query to a store be answered by the engine, as the reader."""

    def asked(_url: str, sql: str, parameters: Mapping[str, str], settings: Any) -> bytes:
        found = Query(sql, settings["default_format"], parameters=parameters)
        return engine.answer(found).data

    monkeypatch.setattr(clickhouse, "_asked", asked)


def project(engine: SqlEngine, events: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Write events as the store does: encoded, decoded and projected, including rollups."""
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for topic, event in events:
        by_topic.setdefault(topic, []).append(event)
    for topic, found in by_topic.items():
        table = TABLES[topic]
        encoded = [codec.encode(table.record, event) for event in found]
        records = [ConsumedRecord(topic, 0, offset, value) for offset, value in enumerate(encoded)]
        batch = translate(table, records, "tests")
        assert not batch.unusable
        for block in blocks(table, batch.rows, 50_000):
            engine.insert(table.name, block)
            for rollup in ROLLUPS.get(topic, ()):
                engine.insert(rollup.name, rollup.aggregate(block))


def insert_events(engine, topic, *events):
    project(engine, [(topic, event) for event in events])


def insert_latencies(engine, run_id, **histograms):
    """One event per stage with its histogram, {milliseconds: count}."""
    events = [
        latency_event(
            run_id=run_id,
            stage=stage,
            latencies_ms=list(histogram),
            counts=list(histogram.values()),
        )
        for stage, histogram in histograms.items()
    ]
    insert_events(engine, catalogue.LATENCY, *events)
