"""Fuzzed records on every projected topic: each becomes a row or a dead letter, and none stops it.

FUZZ_EXAMPLES is the number of records; FUZZ_SEED repeats those of a seed.
"""

import os
from itertools import islice

import pytest

from schemas import catalogue, codec
from services.runtime.events import open_events
from services.runtime.kafka import idempotent_producer
from services.store.settings import StoreSettings
from services.store.tables import TABLES
from tests.integration.fuzzed_records import Fuzzer
from tests.integration.kafka_broker import running_broker
from tests.integration.service_process import DEADLINE_S
from tests.integration.test_projector import project_everything

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3_600)]

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES") or 3_000)
SEED = os.environ.get("FUZZ_SEED", "1")
TOPICS = [one for one in catalogue.fixed_topics() if one.name in TABLES]


def says_nothing(topic: str, value: bytes | None) -> bool:
    """Whether it is an event whose arrays are all empty: no row, and no error."""
    arrays = TABLES[topic].explode
    try:
        name, event = codec.decode(value)
    except codec.DecodeError:
        return False
    if not arrays or name != TABLES[topic].record or any(event[array] for array in arrays):
        return False
    return all(0 <= event[time] < 4_102_444_800_000 for time in TABLES[topic].times)


def test_every_fuzzed_record_is_projected_or_a_dead_letter(tmp_path, engine):
    print(f"FUZZ_SEED={SEED}")
    with running_broker(tmp_path) as bus:
        producer = idempotent_producer(bus, "tests")
        written = {}
        for topic in TOPICS:
            fuzzer = Fuzzer(f"{SEED} {topic.name}")
            values = list(islice(fuzzer.values(topic), EXAMPLES // len(TOPICS)))
            written[topic.name] = values
            for number, value in enumerate(values):
                producer.produce(topic.name, value, b"odd key \xff", partition=0)
                if number % 1_000 == 0:
                    producer.poll(0)
        assert producer.flush(60) == 0
        settings = StoreSettings(kafka_bootstrap=bus.bootstrap, batch_seconds=0.3)
        events = open_events(settings, "tests")
        project_everything(settings, engine, events, DEADLINE_S + EXAMPLES / 20)
    outcomes = {topic: outcome(engine, topic, values) for topic, values in written.items()}
    print(outcomes)
    for topic, values in written.items():
        rows, letters, nothing = outcomes[topic]
        assert rows + letters + nothing == len(values), (topic, outcomes[topic])
        assert rows > len(values) / 5
        assert letters > len(values) / 10 or topic == catalogue.DEAD_LETTER


def outcome(engine, topic, values):
    """How many of the first records of a topic are rows, dead letters and empty."""
    table, written = TABLES[topic].name, len(values)
    (found,) = engine.rows(
        f"SELECT uniqExact(_offset) AS rows FROM tidegauge.{table} WHERE _offset < {written}"
    )
    mine = f"producer = 'tests' AND topic = '{topic}' AND `offset` < {written}"
    (letters,) = engine.rows(
        f"SELECT count() AS n, uniqExact(`offset`) AS records FROM tidegauge.dead_letter"
        f" WHERE {mine} AND _offset >= {written}"
    )
    assert letters["n"] == letters["records"]
    nothing = sum(says_nothing(topic, value) for value in values)
    return int(found["rows"]), int(letters["n"]), nothing
