"""An engine in the tests' own process, and how events get into its tables.

A process can have one engine only, and it starts slowly, so the tests of a module share one.
"""

import pytest

from schemas import catalogue
from services.store.batch import translate
from services.store.blocks import blocks
from services.store.chdb_engine import ChdbEngine
from services.store.ddl import ddl_statements
from services.store.rebuild import drop_statements
from services.store.rollups import ROLLUPS
from services.store.rows import Record
from services.store.settings import StoreSettings
from services.store.tables import POSITIONS, TABLES
from tests.unit.store.test_rows import latency_event, record


@pytest.fixture(scope="module")
def engine_folder(tmp_path_factory):
    """Where the engine of this module lives: a process can have one only, and it starts slowly."""
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
    """The engine with nothing in it."""
    names = [POSITIONS, *(table.name for table in TABLES.values())]
    names += [rollup.name for rollups in ROLLUPS.values() for rollup in rollups]
    module_engine.execute(f"TRUNCATE TABLE tidegauge.{name}" for name in names)
    return module_engine


@pytest.fixture
def engine_to_alter(engine):
    """The engine with nothing in it, for tests that change its tables: they are made anew after."""
    yield engine
    engine.execute([*drop_statements(), *ddl_statements()])


def insert_latencies(engine, run_id, **histograms):
    """One event per stage with its histogram, {milliseconds: count}."""
    table = TABLES[catalogue.LATENCY]
    records = [
        record(
            latency_event(
                run_id=run_id,
                stage=stage,
                latencies_ms=list(histogram),
                counts=list(histogram.values()),
            )
        )
        for stage, histogram in histograms.items()
    ]
    for block in blocks(table, translate(table, records, "tests").rows, 1000):
        insert_with_rollups(engine, table, block)


def insert_with_rollups(engine, table, block):
    engine.insert(table.name, block)
    for rollup in ROLLUPS.get(table.topic, ()):
        engine.insert(rollup.name, rollup.aggregate(block))


def insert_events(engine, topic, *events):
    table = TABLES[topic]
    records = [
        Record(topic, 0, offset, record(event, topic).value) for offset, event in enumerate(events)
    ]
    batch = translate(table, records, "tests")
    assert not batch.unusable
    for block in blocks(table, batch.rows, 1000):
        insert_with_rollups(engine, table, block)
