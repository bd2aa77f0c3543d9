"""Fuzzed records on every topic of a stack, during and after a run: no part dies, each record is
projected or becomes a dead letter, and the next run is clean.

FUZZ_EXAMPLES is the number of records; FUZZ_SEED repeats those of a seed.
"""

import os
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message

from schemas import catalogue
from services.runtime.kafka import idempotent_producer
from services.store.tables import TABLES
from tests.faults.breakable_stack import (
    DEADLINE_S,
    FOR_EVER,
    PIPELINE,
    STAGES,
    BreakableStack,
    breakable_stack,
    eventually,
)
from tests.integration.fuzzed_records import Fuzzer
from tests.traffic import input_topics, output_topics

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3_600)]

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES") or 3_000)
SEED = os.environ.get("FUZZ_SEED", "1")
TOPICS = (*catalogue.fixed_topics(), *input_topics(), *output_topics(PIPELINE, STAGES))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BreakableStack]:
    with breakable_stack(tmp_path_factory.mktemp("stack"), **FOR_EVER) as found:
        yield found


def newest_run(stack: BreakableStack) -> str:
    (row,) = stack.sql("SELECT argMax(run_id, requested_at) AS run_id FROM runs")
    return str(row["run_id"])


def fuzz(stack: BreakableStack, seed: str, records: int, run_id: str) -> dict[str, list[int]]:
    """Write fuzzed records to all topics; returns their offsets by topic."""
    offsets: dict[str, list[int]] = {topic.name: [] for topic in TOPICS}
    failures: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offsets[message.topic()].append(message.offset())
        else:
            failures.append(str(error))

    producer = idempotent_producer(stack.settings, "tests")
    sources = [(topic.name, Fuzzer(f"{seed} {topic.name}", (run_id,))) for topic in TOPICS]
    streams = [
        (name, fuzzer.values(topic)) for topic, (name, fuzzer) in zip(TOPICS, sources, strict=True)
    ]
    for _ in range(records // len(TOPICS)):
        for name, values in streams:
            producer.produce(name, next(values), b"\xff odd key", on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert failures == []
    return offsets


def is_known(stack: BreakableStack, topic: str, offsets: list[int]) -> bool:
    """Whether each of these records is a row, a dead letter or an event without values."""
    first, last = min(offsets), max(offsets)
    place = f"BETWEEN {first} AND {last}"
    table = TABLES[topic].name
    known = (
        f"SELECT _offset AS at FROM {table} WHERE _offset {place} UNION DISTINCT"
        f" SELECT `offset` AS at FROM dead_letter WHERE topic = '{topic}' AND `offset` {place}"
        " AND producer = 'store'"
    )
    rows = stack.sql(f"SELECT groupArray(at) AS found FROM ({known})")
    missing = set(offsets) - set(rows[0]["found"] if rows else ())
    return len(missing) <= len(offsets) / 500 if TABLES[topic].explode else not missing


def test_fuzzed_records_stop_no_part_and_are_all_accounted_for(stack: BreakableStack) -> None:
    print(f"FUZZ_SEED={SEED}")
    run = stack.begin_load()
    stack.await_measuring()
    during = fuzz(stack, f"{SEED} during", EXAMPLES // 2, newest_run(stack))
    run.communicate(timeout=300)  # its records were tampered with, so the result is ignored
    after = fuzz(stack, f"{SEED} after", EXAMPLES // 2, newest_run(stack))
    for topic in TABLES:
        for offsets in (during[topic], after[topic]):
            eventually(
                lambda topic=topic, offsets=offsets: is_known(stack, topic, offsets),
                f"every record of {topic} is projected or a dead letter",
                DEADLINE_S + EXAMPLES / 100,
            )
    assert set(stack.restarts().values()) == {0}
    assert stack.is_ready()
    stack.has_clean_run()
    smoke = stack.tidegauge("run", "smoke", "--pipeline", PIPELINE)
    assert smoke.returncode == 0, smoke.stdout + smoke.stderr
    assert set(stack.restarts().values()) == {0}
