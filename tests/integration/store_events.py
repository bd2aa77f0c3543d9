"""Events that tests of the store publish, and queries for them."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from schemas import catalogue
from services.runtime.events import Events
from services.runtime.kafka import event_producer
from tests.integration.service_process import DEADLINE_S
from tests.unit.store.test_rows import latency_event


def ask(settings, sql, **parameters):
    url = f"http://127.0.0.1:{settings.port('store')}/?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, sql.encode(), timeout=DEADLINE_S) as answer:
        return answer.read().decode()


def rows(settings, sql):
    return [json.loads(line) for line in ask(settings, f"{sql} FORMAT JSONEachRow").splitlines()]


def until(condition, what):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)


def counts(settings, table, run_id):
    """Outputs of a run by latency, from one of the tables of latency counts."""
    return rows(
        settings,
        f"SELECT latency_ms, sum(r.count) AS n FROM {table} AS r"
        f" WHERE run_id = '{run_id}' GROUP BY ALL ORDER BY ALL",
    )


def dead_letters(settings, pattern):
    return rows(
        settings, f"SELECT topic, reason, value FROM dead_letter WHERE value LIKE '{pattern}'"
    )


def events_at(settings, clock_ms):
    return Events(event_producer(settings, "tests"), "tests", lambda: clock_ms)


def publish_latency(events, run_id, number):
    fields = latency_event(latencies_ms=[number, number + 1000], counts=[1, 2])
    for name in ("run_id", "time", "producer"):
        del fields[name]
    events.publish_figures(catalogue.LATENCY, run_id, **fields)


def publish_broken(settings, topic, *values):
    producer = event_producer(settings, "tests")
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_S) == 0


def topic_ends(admin, places):
    wanted = {TopicPartition(*place): OffsetSpec.latest() for place in places}
    found = admin.list_offsets(wanted)
    return {
        (at.topic, at.partition): answer.result(DEADLINE_S).offset for at, answer in found.items()
    }
