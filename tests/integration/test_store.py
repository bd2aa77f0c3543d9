"""The store on a real broker and a real engine: nothing lost, nothing doubled."""

import json
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count

import clickhouse_connect
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from schemas import catalogue, protocol
from services.runtime.kafka import admin_client
from services.store.batch import translate
from services.store.blocks import blocks
from services.store.engine import EngineError
from services.store.inserting import Inserter
from services.store.projector import ProjectionError, open_projector
from services.store.rollups import ROLLUPS
from services.store.settings import StoreSettings
from services.store.tables import TABLES
from tests.integration.kafka_broker import running_broker
from tests.integration.service_process import DEADLINE_S, running_service
from tests.integration.store_events import (
    ask,
    counts,
    dead_letters,
    events_at,
    publish_broken,
    publish_latency,
    rows,
    topic_ends,
    until,
)
from tests.integration.store_process import until_ready
from tests.unit.store.test_rows import NEW_YEAR_MS, latency_event, record

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker of this module's own: these tests put broken records on the shared topics."""
    with running_broker(tmp_path_factory.mktemp("broker")) as settings:
        yield settings


@contextmanager
def running_store(settings, data, **variables):
    kept = {"TIDEGAUGE_KEEP_LATENCY_DAYS": "0", "TIDEGAUGE_KEEP_DEAD_LETTER_DAYS": "0"}
    with running_service(settings, "store", data, **kept, **variables) as process:
        until_ready(settings, process)
        yield process


def projected(settings, run_id):
    return rows(
        settings,
        "SELECT latency_ms, count() AS n FROM results_latency"
        f" WHERE run_id = '{run_id}' GROUP BY latency_ms",
    )


def test_killed_again_and_again_the_store_loses_and_doubles_no_row(broker, tmp_path):
    run_id, total = "killed", 1000
    bold = {"TIDEGAUGE_BATCH_SECONDS": "0.02", "TIDEGAUGE_BATCH_ROWS": "10"}
    december, january = (events_at(broker, NEW_YEAR_MS + ms) for ms in (-1, 0))
    published = 0
    while published < total:
        with running_store(broker, tmp_path, **bold) as process:
            for number in range(published, published + 100):
                publish_latency(january if number % 50 else december, run_id, number)
                if number % 100 == 0:
                    publish_broken(broker, catalogue.LATENCY, f"broken {number}".encode())
            published += 100
            until(lambda: projected(broker, run_id), "some rows are there")
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert december.flush() + january.flush() == 0
    wanted = {value: 1 for number in range(total) for value in (number, number + 1000)}
    with running_store(broker, tmp_path, **bold) as process:
        until(lambda: len(projected(broker, run_id)) == len(wanted), "all values are there")
        until(lambda: len(dead_letters(broker, "broken %")) >= 10, "the dead letters are there")
        assert {
            int(row["latency_ms"]): int(row["n"]) for row in projected(broker, run_id)
        } == wanted
        assert counts(broker, "latency_minutes", run_id) == counts(
            broker, "results_latency", run_id
        )
        letters = [row["value"] for row in dead_letters(broker, "broken %")]
        assert sorted(letters) == sorted(f"broken {number}" for number in range(0, total, 100))
        rebuilt = rebuild(broker, tmp_path)
        assert (rebuilt["state"], rebuilt["equal"]) == ("done", True), rebuilt
        lines = {line["table"]: line["rows_after"] for line in rebuilt["tables"]}
        assert (lines["results_latency"], lines["dead_letter"]) == (2000, 10)
        assert counts(broker, "results_latency", run_id) == counts(
            broker, "latency_minutes", run_id
        )
        assert len(dead_letters(broker, "broken %")) == 10
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0


def rebuild(settings, data, force=False):
    """Rebuild as the admin; what the store says in the end."""
    password = (data / "secrets" / "clickhouse-admin").read_text().strip()
    headers = {"X-ClickHouse-User": "admin", "X-ClickHouse-Key": password}
    url = f"http://127.0.0.1:{settings.port('store')}/rebuild?force={int(force)}"

    def status(method):
        request = urllib.request.Request(url, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.load(answer)

    status("POST")
    until(lambda: status("GET")["state"] not in ("waiting", "running"), "the rebuild is done")
    return status("GET")


def test_a_rebuild_that_would_lose_what_the_bus_dropped_is_refused_unless_forced(tmp_path):
    data = tmp_path / "store"
    with running_broker(tmp_path) as bus, running_store(bus, data):
        events = events_at(bus, NEW_YEAR_MS)
        for number in range(10):
            publish_latency(events, "old", number)
        assert events.flush() == 0
        until(lambda: len(projected(bus, "old")) == 20, "all values are there")
        gone = TopicPartition(catalogue.LATENCY, 0, 4)
        admin = admin_client(bus, "tests")
        for future in admin.delete_records([gone]).values():
            future.result(DEADLINE_S)
        refused = rebuild(bus, data)
        assert refused["state"] == "refused"
        assert "no longer has the records behind 8 rows of results.latency/0" in refused["sentence"]
        assert len(projected(bus, "old")) == 20
        forced = rebuild(bus, data, force=True)
        assert (forced["state"], forced["equal"]) == ("done", False)
        assert "results_latency, latency_minutes: not as before" in forced["sentence"]
        assert len(projected(bus, "old")) == 12


@pytest.fixture(scope="class")
def store(broker, tmp_path_factory):
    """A store that runs as long as the tests of one class."""
    with running_store(broker, tmp_path_factory.mktemp("store")):
        yield


@pytest.mark.usefixtures("store")
class TestAStoreThatRuns:
    def test_only_the_admin_can_rebuild(self, broker):
        for method in ("GET", "POST"):
            request = urllib.request.Request(
                f"http://127.0.0.1:{broker.port('store')}/rebuild", method=method
            )
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request)
            assert caught.value.code == 403

    def test_an_event_can_be_queried_over_http_and_with_the_client(self, broker):
        publish_latency(events_at(broker, NEW_YEAR_MS), "visible", 7)
        until(lambda: projected(broker, "visible"), "the event is there")
        assert (
            ask(
                broker,
                "SELECT p50_ms FROM latency_summary WHERE run_id = {r:String}",
                param_r="visible",
            )
            == "1007\n"
        )
        client = clickhouse_connect.get_client(host="127.0.0.1", port=broker.port("store"))
        answer = client.query(
            "SELECT latency_ms, count FROM tidegauge.results_latency"
            " WHERE run_id = {r:String} ORDER BY ALL",
            {"r": "visible"},
        )
        assert answer.result_rows == [(7, 1), (1007, 2)]
        client.close()

    def test_a_wrong_query_is_answered_with_the_engines_own_words(self, broker):
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(broker, "SELECT * FROM nothing_of_that_name")
        assert caught.value.code == 404
        assert caught.value.headers["X-ClickHouse-Exception-Code"] == "60"
        assert "UNKNOWN_TABLE" in caught.value.read().decode()
        assert ask(broker, "SELECT 1") == "1\n"


def test_a_slow_query_is_cancelled_by_its_limit_and_holds_up_no_projection(broker, tmp_path):
    endless = "SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) = 1"
    with ThreadPoolExecutor(2) as pool, running_store(broker, tmp_path):
        slow = pool.submit(ask, broker, endless)
        limited = pool.submit(ask, broker, endless, max_execution_time=1)
        with pytest.raises(urllib.error.HTTPError) as caught:
            limited.result()
        assert caught.value.headers["X-ClickHouse-Exception-Code"] == "159"
        publish_latency(events_at(broker, NEW_YEAR_MS), "meanwhile", 1)
        until(lambda: projected(broker, "meanwhile"), "the event is there")
        assert not slow.done()  # the store ends it with itself


class FailingEngine:
    """The real engine, which fails at the n-th insert instead of doing it."""

    def __init__(self, engine, failing_insert):
        self._engine = engine
        self._left = failing_insert

    def rows(self, sql):
        return self._engine.rows(sql)

    def insert(self, table, block):
        if self._left == 0:
            raise EngineError("the process ended here")
        self._left -= 1
        self._engine.insert(table, block)


def test_ending_before_any_insert_and_resuming_gives_every_row_once(broker, engine):
    events = events_at(broker, NEW_YEAR_MS)
    publish_broken(broker, catalogue.VERDICTS, b"first")
    for number in range(5):
        publish_latency(events, "ended", number)
        publish_broken(broker, catalogue.LATENCY, b"between")
        events.lifecycle(protocol.READY, "ended")
    publish_broken(broker, catalogue.DEAD_LETTER, b"no dead letter")
    settings = StoreSettings(
        base_port=broker.base_port, batch_rows=4, batch_seconds=0.3, insert_retry_seconds=0
    )
    for failing_insert in (0, 1, 2, 1, 0, 3, 2, 1, 4, 0, 5, 1, 2, 3):
        with suppress(EngineError):
            project_everything(settings, FailingEngine(engine, failing_insert), events)
    project_everything(settings, engine, events)
    found = engine.rows(
        "SELECT count() AS n, uniq(_offset, latency_ms) AS u"
        " FROM tidegauge.results_latency WHERE run_id = 'ended'"
    )
    assert found == [{"n": 10, "u": 10}]
    found = engine.rows(
        "SELECT latency_ms, sum(m.count) AS n FROM tidegauge.latency_minutes AS m"
        " WHERE run_id = 'ended' GROUP BY ALL ORDER BY ALL"
    )
    assert [tuple(row.values()) for row in found] == [
        *((number, 1) for number in range(5)),
        *((number + 1000, 2) for number in range(5)),
    ]
    found = engine.rows(
        "SELECT count() AS n FROM tidegauge.results_lifecycle WHERE run_id = 'ended'"
    )
    assert found == [{"n": 5}]
    found = engine.rows(
        "SELECT topic, value, count() AS n FROM tidegauge.dead_letter"
        " WHERE value IN ('first', 'between', 'no dead letter') GROUP BY ALL ORDER BY ALL"
    )
    assert found == [
        {"topic": "dead-letter", "value": "no dead letter", "n": 1},
        {"topic": "results.latency", "value": "between", "n": 5},
        {"topic": "results.verdicts", "value": "first", "n": 1},
    ]


class ForgetfulEngine:
    """The real engine, some of whose answers to inserts are lost, before or after they are done."""

    def __init__(self, engine):
        self._engine = engine
        self._number = 0

    def rows(self, sql):
        return self._engine.rows(sql)

    def insert(self, table, block):
        self._number += 1
        if self._number % 3 != 0:
            self._engine.insert(table, block)
        if self._number % 3 != 1:
            raise EngineError("the answer was lost")


def test_an_insert_whose_answer_is_lost_is_made_again_if_it_was_not_done(engine):
    table = TABLES[catalogue.LATENCY]
    records = [
        record(latency_event(latencies_ms=[number, number + 1000], counts=[1, 2]), offset=number)
        for number in range(6)
    ]
    seconds = count()  # a clock that goes on by itself: nothing is waited for
    inserter = Inserter(
        ForgetfulEngine(engine), StoreSettings(), lambda: False, lambda _s: None, seconds.__next__
    )
    for block in blocks(table, translate(table, records, "tests").rows, 4):
        inserter.insert(table.name, block)
        for rollup in ROLLUPS[catalogue.LATENCY]:
            inserter.insert(rollup.name, block, rollup.aggregate)
    values = {number + more: 1 for number in range(6) for more in (0, 1000)}
    for name in ("results_latency", "latency_minutes"):
        found = engine.rows(
            f"SELECT latency_ms, count() AS n FROM tidegauge.{name} GROUP BY latency_ms"
        )
        assert {row["latency_ms"]: row["n"] for row in found} == values


def test_a_partition_that_is_added_is_projected_without_a_restart(tmp_path, engine):
    with running_broker(tmp_path) as bus:
        settings = StoreSettings(base_port=bus.base_port, batch_seconds=0.1, discover_seconds=0.1)
        events = events_at(bus, NEW_YEAR_MS)
        projector = open_projector(settings, engine, events)
        projector.resume()
        admin, added = admin_client(bus, "tests"), NewPartitions(catalogue.LATENCY, 2)
        admin.create_partitions([added])[catalogue.LATENCY].result(DEADLINE_S)
        for number in range(20):
            publish_latency(events, f"run-{number}", 1)
        assert events.flush() == 0

        def all_is_there():
            projector.step()
            is_known = (catalogue.LATENCY, 1) in projector.positions()
            sql = "SELECT uniq(run_id) AS n FROM tidegauge.results_latency"
            return is_known and engine.rows(sql) == [{"n": 20}]

        until(all_is_there, "both partitions are projected")
        projector.close()


def project_everything(settings, engine, events):
    """Until the projection is where every topic ends: what it puts aside comes round again."""
    projector = open_projector(settings, engine, events)
    admin = admin_client(settings, "tests")
    deadline = time.monotonic() + DEADLINE_S
    try:
        projector.resume()
        while projector.positions() != topic_ends(admin, projector.positions()):
            assert time.monotonic() < deadline
            projector.step()
    finally:
        projector.close()


def test_another_bus_than_the_projected_one_is_refused(broker, engine):
    engine.execute(
        ["INSERT INTO tidegauge.projection_position VALUES ('results.pipeline', 0, 1000, 0)"]
    )
    settings = StoreSettings(base_port=broker.base_port)
    projector = open_projector(settings, engine, events_at(broker, NEW_YEAR_MS))
    with pytest.raises(ProjectionError, match=r"results\.pipeline/0 ends at offset 0, but records"):
        projector.resume()
    projector.close()
