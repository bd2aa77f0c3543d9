"""The store with a real broker and a real engine: no rows are lost or duplicated."""

import json
import signal
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import clickhouse_connect
import pytest
from confluent_kafka import TopicPartition

from schemas import catalogue
from services.runtime.kafka import admin_client
from tests.integration.kafka_broker import own_broker, running_broker  # noqa: F401
from tests.integration.service_process import DEADLINE_S, running_service
from tests.integration.store_events import (
    ask,
    counts,
    dead_letters,
    events_at,
    publish_broken,
    publish_latency,
    rows,
    until,
)
from tests.integration.store_process import until_ready
from tests.unit.store.test_rows import NEW_YEAR_MS

pytestmark = pytest.mark.integration


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
    run_id, total, letters_due = "killed", 200, 2
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
        until(lambda: len(dead_letters(broker, "broken %")) >= letters_due, "all are there")
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
        assert (lines["results_latency"], lines["dead_letter"]) == (2 * total, letters_due)
        assert counts(broker, "results_latency", run_id) == counts(
            broker, "latency_minutes", run_id
        )
        assert len(dead_letters(broker, "broken %")) == letters_due
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0


def rebuild(settings, data, force=False):
    """Rebuild as the admin; returns the store's final message."""
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
        assert "no longer has the records of 8 rows of results.latency/0" in refused["sentence"]
        assert len(projected(bus, "old")) == 20
        forced = rebuild(bus, data, force=True)
        assert (forced["state"], forced["equal"]) == ("done", False)
        assert "results_latency, latency_minutes: not as before" in forced["sentence"]
        assert len(projected(bus, "old")) == 12


@pytest.fixture(scope="class")
def store(broker, tmp_path_factory):
    """A store that runs during the tests of one class."""
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
        assert not slow.done()  # the store ends the query when it stops
