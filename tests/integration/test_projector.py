"""The projector with a real broker and a real engine, wherever it is stopped and whatever it
reads."""

import json
import time
from contextlib import suppress
from itertools import count

import psutil
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from schemas import catalogue
from schemas.events import Ready, RecordsLost
from services.runtime.kafka import admin_client
from services.store.engine import EngineError
from services.store.engines.schema import ROLLUPS
from services.store.projection.inserting import Inserter, ProjectionError
from services.store.projection.projector import open_projector
from services.store.projection.rows import blocks, translate
from services.store.settings import StoreSettings
from services.store.tables import TABLES
from tests.integration.kafka_broker import own_broker, running_broker  # noqa: F401
from tests.integration.service_process import DEADLINE_S
from tests.integration.store_events import (
    events_at,
    publish_broken,
    publish_latency,
    topic_ends,
    until,
)
from tests.unit.store.test_rows import NEW_YEAR_MS, latency_event, record

pytestmark = pytest.mark.integration


class FailingEngine:
    """The real engine, except that the n-th insert fails without being done."""

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
        events.publish(Ready(run_id="ended"))
    publish_broken(broker, catalogue.DEAD_LETTER, b"no dead letter")
    settings = StoreSettings(
        kafka_bootstrap=broker.bootstrap, batch_rows=4, batch_seconds=0.3, insert_retry_seconds=0
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
    """The real engine, which loses some answers to inserts, before or after doing them."""

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
    seconds = count()  # a clock that advances by itself: nothing waits
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
        settings = StoreSettings(
            kafka_bootstrap=bus.bootstrap, batch_seconds=0.1, discover_seconds=0.1
        )
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


def test_a_record_that_the_engine_refuses_is_a_dead_letter_and_the_others_are_rows(
    tmp_path, engine_to_alter
):
    engine = engine_to_alter
    engine.execute(
        f"ALTER TABLE tidegauge.{table} ADD CONSTRAINT odd CHECK latency_ms NOT IN (3, 1006)"
        for table in ("results_latency", "latency_minutes")
    )
    with running_broker(tmp_path) as bus:
        events = events_at(bus, NEW_YEAR_MS)
        for number in range(10):
            publish_latency(events, "refused", number)
        assert events.flush() == 0
        settings = StoreSettings(kafka_bootstrap=bus.bootstrap, batch_seconds=0.3)
        project_everything(settings, engine, events)
        project_everything(settings, engine, events)
    found = engine.rows(
        "SELECT _offset, count() AS n FROM tidegauge.results_latency GROUP BY ALL ORDER BY ALL"
    )
    assert found == [{"_offset": number, "n": 2} for number in (0, 1, 2, 4, 5, 7, 8, 9)]
    summed = engine.rows("SELECT sum(m.count) AS n FROM tidegauge.latency_minutes AS m")
    assert summed == [{"n": 3 * 8}]
    letters = engine.rows(
        "SELECT topic, `offset`, startsWith(reason, 'ClickHouse refuses its values: Code: 469')"
        " AS said FROM tidegauge.dead_letter ORDER BY `offset`"
    )
    topic = catalogue.LATENCY
    assert letters == [{"topic": topic, "offset": at, "said": 1} for at in (3, 6)]


def test_records_that_retention_removed_before_they_were_projected_are_told_of_once(
    tmp_path, engine
):
    with running_broker(tmp_path) as bus:
        events = events_at(bus, NEW_YEAR_MS)
        settings = StoreSettings(kafka_bootstrap=bus.bootstrap, batch_seconds=0.3)

        admin = admin_client(bus, "tests")

        def publish_and_remove(before):
            for number in range(10):
                publish_latency(events, "removed", number)
            assert events.flush() == 0
            gone = TopicPartition(catalogue.LATENCY, 0, before)
            for future in admin.delete_records([gone]).values():
                future.result(DEADLINE_S)

        publish_and_remove(4)
        project_everything(settings, engine, events)
        project_everything(settings, engine, events)
        assert lost_records(engine) == [(4, 0, 4)]
        projector = open_projector(settings, engine, events)
        projector.resume()
        publish_and_remove(13)

        def all_is_there():
            projector.step()
            return projector.positions()[catalogue.LATENCY, 0] == 20

        until(all_is_there, "the rest is projected")
        until(lambda: projector.step() or len(lost_records(engine)) == 2, "the gap is told of")
        projector.close()
    assert lost_records(engine) == [(4, 0, 4), (3, 10, 13)]
    found = engine.rows("SELECT uniqExact(_offset) AS n FROM tidegauge.results_latency")
    assert found == [{"n": 13}]


def lost_records(engine):
    """Number of records, first offset and next offset of every reported gap."""
    details = engine.rows(
        "SELECT detail FROM tidegauge.results_lifecycle"
        f" WHERE event = '{RecordsLost.name}' AND run_id = '' ORDER BY _offset"
    )
    found = [json.loads(row["detail"]) for row in details]
    assert {(one["topic"], one["partition"]) for one in found} == {(catalogue.LATENCY, 0)}
    return [(one["records"], one["first_offset"], one["next_offset"]) for one in found]


def project_everything(settings, engine, events, deadline_s=DEADLINE_S):
    """Project until every topic's end, including the new dead letters."""
    projector = open_projector(settings, engine, events)
    admin = admin_client(settings, "tests")
    deadline = time.monotonic() + deadline_s
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
    settings = StoreSettings(kafka_bootstrap=broker.bootstrap)
    projector = open_projector(settings, engine, events_at(broker, NEW_YEAR_MS))
    with pytest.raises(ProjectionError, match=r"results\.pipeline/0 ends at offset 0, but records"):
        projector.resume()
    projector.close()


def test_free_memory_of_the_engine_is_returned(engine):
    engine.rows("SELECT length(groupArray(number)) AS n FROM numbers(5_000_000)")
    process = psutil.Process()
    before = process.memory_info().rss
    engine.release_memory()
    assert process.memory_info().rss < before - 20_000_000
