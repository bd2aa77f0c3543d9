"""The engine for a ClickHouse server, tested with ClickHouse over HTTP: that of another store, as
its admin.

No server can be installed here, so the statements run on the same version of the embedded engine.
This does not cover the server's own accounts: their statements are only parsed.
"""

import json
import time

import pytest

from schemas import catalogue
from services.runtime.events import Events
from services.runtime.kafka import event_producer
from services.runtime.settings import ServiceSettings
from services.store.engine import EngineError, Query
from services.store.engines.chdb_engine import ChdbEngine
from services.store.engines.schema import DDL_DIR, bring_up
from services.store.engines.server_engine import ServerEngine, reader_statements
from services.store.policy.permissions import quoted
from services.store.projection.projector import open_projector
from services.store.settings import StoreSettings
from tests.integration.kafka_broker import free_base_port
from tests.integration.service_process import DEADLINE_S, running_service
from tests.integration.store_process import until_ready
from tests.unit.store.test_rows import NEW_YEAR_MS, latency_event

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """An engine on a server. The DDL and retention are applied through it."""
    folder = tmp_path_factory.mktemp("server")
    process = ServiceSettings(base_port=free_base_port(), data=folder)
    with running_service(process, "store", TIDEGAUGE_OFFLINE="true") as running:
        until_ready(process, running)
        settings = StoreSettings(
            data=folder / "client",
            clickhouse_url=f"http://127.0.0.1:{process.port('store')}",
            clickhouse_user="admin",
            clickhouse_password_file=folder / "secrets" / "clickhouse-admin",
            clickhouse_manage_reader=False,
        )
        engine = ServerEngine(settings, "read")
        bring_up(engine, StoreSettings(keep_latency_days=0))
        yield engine


def test_the_same_projector_projects_into_a_server_and_goes_on_where_it_ended(broker, server):
    events = Events(event_producer(broker, "tests"), "tests", lambda: NEW_YEAR_MS)
    settings = StoreSettings(kafka_bootstrap=broker.bootstrap, batch_seconds=0.2)
    for part in range(3):
        for number in range(10 * part, 10 * part + 10):
            fields = latency_event(latencies_ms=[number], counts=[2])
            for name in ("run_id", "time", "producer"):
                del fields[name]
            events.publish_figures(catalogue.LATENCY, "served", **fields)
        assert events.flush() == 0
        projector = open_projector(settings, server, events)
        projector.resume()
        deadline = time.monotonic() + DEADLINE_S
        while server.rows(COUNTED)[0]["n"] < 10 * part + 10:
            assert time.monotonic() < deadline
            projector.step()
        projector.close()
    found = server.rows(
        "SELECT count() AS n, sum(m.count) AS outputs FROM tidegauge.latency_minutes AS m"
        " WHERE run_id = 'served'"
    )
    assert found == [{"n": 30, "outputs": 60}]
    (row,) = server.rows("SELECT p50_ms FROM tidegauge.latency_summary WHERE run_id = 'served'")
    assert row == {"p50_ms": 14}


COUNTED = "SELECT count() AS n FROM tidegauge.results_latency WHERE run_id = 'served'"


def test_queries_are_answered_and_judged_as_those_of_the_embedded_engine(server):
    answer = server.answer(
        Query(
            "SELECT {n:UInt8} AS n", "JSONEachRow", parameters={"n": "7"}, settings={"limit": "5"}
        )
    )
    assert (json.loads(answer.data), answer.output_format) == ({"n": 7}, "JSONEachRow")
    for text in (
        "SELECT * FROM url('http://127.0.0.1:1/')",
        "SELECT file('/etc/hostname')",
        "SELECT * FROM system.users",
        "DROP TABLE results_latency",
        "SELECT 1; SELECT 2",
    ):
        with pytest.raises(EngineError):
            server.answer(Query(text))
    with pytest.raises(EngineError, match="UNKNOWN_TABLE"):
        server.answer(Query("SELECT * FROM nothing_of_that_name"))


def test_every_example_is_a_query_that_a_server_takes(server):
    paths = sorted((DDL_DIR / "examples").glob("*.sql"))
    assert paths
    for path in paths:
        server.answer(Query(path.read_text()))


def test_a_server_that_does_not_answer_or_know_us_is_said_so(server, tmp_path):
    with pytest.raises(EngineError, match="does not answer"):
        ServerEngine(StoreSettings(data=tmp_path, clickhouse_url="http://127.0.0.1:1"), "")
    with pytest.raises(EngineError, match="AUTHENTICATION_FAILED"):
        ServerEngine(
            StoreSettings(data=tmp_path, clickhouse_url=server._url, clickhouse_user="x"), ""
        )


def test_the_statements_that_make_the_reader_parse_and_hold_no_password(tmp_path):
    engine = ChdbEngine(StoreSettings(data=tmp_path))
    statements = list(reader_statements(StoreSettings(data=tmp_path), "secret"))
    for statement in statements:
        (row,) = engine.rows(f"SELECT formatQuerySingleLine({quoted(statement)}) AS text")
        assert row["text"].split()[0] in ("CREATE", "ALTER", "GRANT")
        assert "secret" not in row["text"]
    engine.close()
