"""Results of a watch on its bus, and functions that wait for them."""

import json
import time
from collections import Counter

from schemas import catalogue
from schemas.events import WatchTrouble
from schemas.watch import Watch
from services.runtime.events import decoded, read_spans
from services.runtime.kafka import assigned_consumer, ends_of
from tests.integration.watched_pipeline import run_of, told_by

RELATION = {"deadline_ms": 2_000, "give_up_ms": 4_000, "remember_ms": 8_000}
RUN_S = 5
TOPICS = (
    *(catalogue.LIFECYCLE, catalogue.LATENCY, catalogue.VERDICTS, catalogue.CONCLUSIONS),
    *(catalogue.THROUGHPUT, catalogue.METRICS),
)


def a_watch(broker, name, **fields):
    """A watch of topics of a broker from their beginning; `fields` replace its defaults."""
    plain = {
        "name": name,
        "kafka": {"bootstrap": broker.bootstrap},
        "relation": RELATION,
        "begin": "earliest",
        "run_s": RUN_S,
    }
    return Watch.model_validate(plain | fields)


def published(broker):
    """Schema name and fields of every result on the bus."""
    consumer = assigned_consumer(broker, "tests-bus", **{"fetch.min.bytes": 1})
    spans = {place: (0, end) for place, end in ends_of(consumer, TOPICS).items()}
    found = list(decoded(read_spans(consumer, spans)))
    consumer.close()
    return found


def concluded(records, watch):
    """Conclusions of a watch by run number."""
    return {
        run_of(watch, record["run_id"]): record
        for name, record in records
        if name == "results_conclusions" and record["run_id"].startswith(f"watch-{watch.name}-")
    }


def await_conclusion(broker, watch, time_ms):
    """Wait until the run that contains a time is concluded; returns the published results."""
    run = time_ms // (1000 * watch.run_s)
    return await_that(broker, lambda records: run in concluded(records, watch))


def await_pairs(broker, watch, count):
    """Wait until this number of outputs has been paired."""
    await_that(
        broker,
        lambda records: sum(map(Counter.total, told_by(records, watch)[0].values())) >= count,
    )


def read_of(records, watch, topic):
    """Number of records of a topic that a watch has read."""
    return sum(
        record["records"]
        for name, record in records
        if name == "results_throughput"
        and record["topic"] == topic
        and record["run_id"].startswith(f"watch-{watch.name}-")
    )


def troubles(records, kind=""):
    """Problems of watches, of one kind or all, ordered by time."""
    found = [
        (record["time"], json.loads(record["detail"]))
        for name, record in records
        if name == "results_lifecycle" and record["event"] == WatchTrouble.name
    ]
    found.sort(key=lambda one: one[0])
    return [detail for _, detail in found if kind in ("", detail["kind"])]


def await_that(broker, is_so, deadline_s=120):
    """Wait until the results on the bus satisfy a condition; returns them."""
    end_s = time.monotonic() + deadline_s
    while not is_so(records := published(broker)):
        assert time.monotonic() < end_s, troubles(records)
        time.sleep(0.2)  # poll interval
    return records
