"""Tables of the store: schema, permissions and retention."""

import random
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from schemas import catalogue
from services.store.engine import EngineError, Query
from services.store.engines.chdb_engine import ChdbEngine, FolderTakenError
from services.store.engines.schema import (
    TABLE_SETTINGS,
    bring_up,
    ddl_statements,
    setting_statements,
)
from services.store.projection.rebuild import REFUSED, rebuild, rows_before
from services.store.settings import StoreSettings
from services.store.tables import TABLES
from tests.integration.store_engine import insert_events, insert_latencies
from tests.unit.store.test_rows import NEW_YEAR_MS

pytestmark = pytest.mark.integration


def test_a_query_cannot_lift_the_bounds_but_tighten_them(engine):
    value = "SELECT value FROM system.settings WHERE name = 'max_execution_time'"
    for asked, given_value in (("1000", b"30\n"), ("0", b"30\n"), ("2", b"2\n")):
        answer = engine.answer(Query(value, settings={"max_execution_time": asked}))
        assert answer.data == given_value


def test_a_query_of_the_admin_has_the_bounds_that_it_asks_for(engine):
    # A bound of rows is 0 where the engine reads the setting itself: it holds for the result alone.
    names = ("max_execution_time", "max_memory_usage", "max_parser_depth")
    value = f"SELECT name, value FROM system.settings WHERE name IN {names} ORDER BY name"

    def bounds_of(**asked):
        query = Query(value, "CSV", settings=asked, may_write=True)
        rows = engine.answer(query).data.decode().replace('"', "").splitlines()
        return dict(row.split(",") for row in rows)

    memory = StoreSettings().query_max_memory_bytes
    none = {"max_execution_time": "0", "max_parser_depth": "1000"}
    assert bounds_of() == none | {"max_memory_usage": f"{memory}"}
    asked = {"max_execution_time": "600", "max_result_rows": "7"}
    assert bounds_of(**asked) == none | {
        "max_execution_time": "600",
        "max_memory_usage": f"{memory}",
    }
    tighter = {"max_memory_usage": "50000000", "max_parser_depth": "900"}
    assert bounds_of(**tighter) == none | tighter
    wider = {"max_memory_usage": f"{2 * memory}", "max_parser_depth": "0"}
    assert bounds_of(**wider) == none | {"max_memory_usage": f"{memory}"}
    with pytest.raises(EngineError, match="TOO_MANY_ROWS"):
        engine.answer(Query("SELECT 1 FROM numbers(8)", settings=asked, may_write=True))
    with pytest.raises(EngineError, match="is not a number"):
        bounds_of(max_result_rows="1' OR")
    with pytest.raises(EngineError, match="TOO_MANY_ROWS_OR_BYTES"):
        engine.answer(Query("SELECT * FROM numbers(2000000)"))
    endless = "SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) = 1"
    with pytest.raises(EngineError, match="TIMEOUT_EXCEEDED"):
        engine.answer(Query(endless, settings={"max_execution_time": "0.3"}))


def test_a_long_name_does_not_multiply_a_result_beyond_its_limit(engine):
    sql = f'SELECT number AS "{"a" * 10_000}" FROM numbers(10000) FORMAT JSONEachRow'
    with pytest.raises(EngineError, match="more than 67108864 bytes"):
        engine.answer(Query(sql))


def test_two_processes_cannot_own_one_folder(engine, engine_folder):
    with pytest.raises(FolderTakenError, match="another process owns"):
        ChdbEngine(StoreSettings(data=engine_folder))


def test_the_ddl_can_be_applied_again_and_has_the_columns_of_the_contract(engine):
    engine.execute(ddl_statements())
    for table in TABLES.values():
        found = engine.rows(f"DESCRIBE TABLE tidegauge.{table.name}")
        assert [row["name"] for row in found] == table.columns.names


def test_columns_that_a_later_version_of_a_record_has_are_added_in_their_place(engine_to_alter):
    later = {
        "results_throughput": ["aborted"],
        "results_pairs": ["visible_from_ms", "handed_ms"],
        "results_pipeline": ["scheduler_delays_ms", "scheduler_delay_tasks"],
    }
    drops = [
        f"ALTER TABLE tidegauge.{table} DROP COLUMN {column}"
        for table, columns in later.items()
        for column in columns
    ]
    engine_to_alter.execute([*drops, *ddl_statements()])
    for table in TABLES.values():
        described = engine_to_alter.rows(f"DESCRIBE TABLE tidegauge.{table.name}")
        assert [row["name"] for row in described] == table.columns.names


def test_queries_and_inserts_at_the_same_time_all_succeed(engine):
    query = Query("SELECT count() FROM latency_summary")
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(engine.answer, query) for _n in range(60)]
        for number in range(30):
            insert_latencies(engine, f"run-{number}", join={random.Random(number).randint(0, 9): 1})
        assert all(answer.result().data for answer in answers)
    assert engine.answer(query).data == b"30\n"


def test_raw_rows_expire_by_the_settings_and_the_sums_stay(engine_to_alter):
    insert_latencies(engine_to_alter, "old", join={3: 99, 700: 1})
    summary = "SELECT p50_ms, p99_ms, max_ms FROM tidegauge.latency_summary WHERE run_id = 'old'"
    before = engine_to_alter.rows(summary)
    bring_up(engine_to_alter, StoreSettings(keep_latency_days=30))
    engine_to_alter.execute(["OPTIMIZE TABLE tidegauge.results_latency FINAL"])
    assert engine_to_alter.rows("SELECT count() AS n FROM tidegauge.results_latency") == [{"n": 0}]
    assert engine_to_alter.rows(summary) == before == [{"p50_ms": 3, "p99_ms": 3, "max_ms": 700}]


def test_a_rebuild_that_would_lose_sums_of_expired_rows_is_refused(engine):
    insert_latencies(engine, "old", join={3: 99, 700: 1})
    engine.execute(["TRUNCATE TABLE tidegauge.results_latency"])
    for first, lost in ((0, {}), (1, {(catalogue.LATENCY, 0): 2})):
        assert rows_before(engine, {(catalogue.LATENCY, 0): first}) == lost
    projector = SimpleNamespace(firsts=lambda: {(catalogue.LATENCY, 0): 1})
    status = rebuild(engine, projector, StoreSettings(), False, lambda: False)
    assert (status.state, status.equal) == (REFUSED, False)
    assert "no longer has the records of 2 rows of results.latency/0" in status.sentence
    sums = engine.rows("SELECT sum(m.count) AS n FROM tidegauge.latency_minutes AS m")
    assert sums == [{"n": 100}]


def test_every_table_merges_in_tiers_however_often_the_store_starts(engine_to_alter):
    tables = "SELECT name, engine_full FROM system.tables WHERE database = 'tidegauge'"
    for _start in range(2):
        bring_up(engine_to_alter, StoreSettings())
        defined = {row["name"]: row["engine_full"] for row in engine_to_alter.rows(tables)}
        assert all(setting in defined["results_latency"] for setting in TABLE_SETTINGS)
        assert list(setting_statements(defined)) == []


def test_retention_is_changed_and_taken_back_by_the_settings(engine_to_alter):
    definition = (
        "SELECT engine_full FROM system.tables"
        " WHERE database = 'tidegauge' AND name = 'results_pipeline'"
    )
    for days, expected in ((90, "toIntervalDay(90)"), (7, "toIntervalDay(7)")):
        bring_up(engine_to_alter, StoreSettings(keep_progress_days=days))
        assert expected in engine_to_alter.rows(definition)[0]["engine_full"]
    bring_up(engine_to_alter, StoreSettings(keep_progress_days=0))
    assert " TTL " not in engine_to_alter.rows(definition)[0]["engine_full"]


def test_of_the_resources_only_what_belongs_to_no_run_expires(engine_to_alter):
    sample = {"time": NEW_YEAR_MS, "producer": "c", "service": "store", "pipeline": ""}
    used = {"interval_s": 1.0, "cpu_seconds": 0.5, "memory_bytes": 1, "processes": 1, "threads": 1}
    insert_events(
        engine_to_alter,
        catalogue.RESOURCES,
        {"run_id": ""} | sample | used,
        {"run_id": "r"} | sample | used,
    )
    bring_up(engine_to_alter, StoreSettings())
    engine_to_alter.execute(["OPTIMIZE TABLE tidegauge.results_resources FINAL"])
    left = engine_to_alter.rows("SELECT run_id FROM tidegauge.results_resources")
    assert left == [{"run_id": "r"}]
