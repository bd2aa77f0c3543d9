"""Timestamps of outputs that are not the times of publishing, in a whole watch."""

import json
import random

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

from services.watcher.runs import judged_run
from services.watcher.watched import Watched
from services.watcher.watching import said_of_times
from tests.unit.watcher.records import a_watch, message

pytestmark = pytest.mark.unit

START_MS = 1_800_000_000_123
RELATION = {"deadline_ms": 100_000, "give_up_ms": 200_000, "remember_ms": 300_000}
LIMITS = ["p99_ms <= 500", "missing <= 0"]


def random_ms(low, high):
    """Varying latencies, the same in every test run."""
    drawn = random.Random(7)
    return lambda number: drawn.randint(low, high)


def run_of(took_ms, count=20, kind=TIMESTAMP_CREATE_TIME, step_ms=137, partitions=1, saves=False):
    """The totals of a run with so many outputs: their latency and partition by number."""
    watch = a_watch(begin="earliest", relation=RELATION, thresholds=LIMITS, run_s=86_400)
    found = Watched(watch, 0, clock=lambda: START_MS)
    for number in range(count):
        at_ms, key = START_MS - 1_000_000 + step_ms * number, b"k%d" % number
        found.take("in", [message("in", b"v", key, at_ms, offset=number, kind=kind)])
        place = {"partition": number % partitions, "offset": number // partitions}
        took = took_ms(number)
        found.take("out", [message("out", b"v", key, at_ms + took, kind=kind, **place)])
        if saves and number == count // 2:
            list(found.advance(at_ms))
            arrays, rest = found.saved()
            found = Watched(watch, 0, clock=lambda: START_MS)
            found.restore(arrays, json.loads(json.dumps(rest)))
    list(found.advance(START_MS))
    return watch, found.counting.end(found.counting.run_of(START_MS - 1_000_000))


@pytest.mark.parametrize(
    ("took_ms", "count", "step_ms"),
    [
        (lambda _: 0, 20, 137),
        (lambda _: 0, 3, 137),
        (lambda _: 0, 20, 0),  # all inputs in one millisecond
        (lambda number: 0 if number % 10 else 40 + number, 100, 137),
        (lambda _: 5_000, 20, 137),
        (lambda _: -3_600, 20, 137),
        (lambda _: 1, 100, 137),
        (lambda number: 0 if number % 2 else 300 + 7 * number, 100, 137),  # of one of two writers
        (lambda number: 5_000 - 1 - (START_MS - 1_000_000 + 137 * number) % 5_000, 400, 137),
    ],
)
def test_a_constant_that_no_pipeline_can_keep_is_no_latency(took_ms, count, step_ms):
    watch, totals = run_of(took_ms, count, step_ms=step_ms)
    assert "timestamps in out are" in totals.unmeasured
    latency, missing = judged_run(watch, totals, (0, 60_000))
    assert (latency.value, latency.passed) == (None, False)
    assert (missing.value, missing.passed) == (0, True)
    told = said_of_times({"out": {"CreateTime"}}, [], None, totals.unmeasured)
    assert "cannot measure latency" in told
    assert "LogAppendTime" in told


@pytest.mark.parametrize(
    ("took_ms", "count"),
    [
        (random_ms(1, 2), 200),
        (random_ms(0, 1), 200),
        (random_ms(20, 24), 20),
        (random_ms(20, 400), 1_000),
        (lambda _: 1, 20),  # too few to tell from a fast pipeline
        (lambda _: 300, 4),
    ],
)
def test_latencies_that_vary_are_measured(took_ms, count):
    watch, totals = run_of(took_ms, count)
    assert totals.unmeasured == ""
    assert all(row.passed for row in judged_run(watch, totals, (0, 60_000)))


def test_times_of_the_broker_are_measured_whatever_they_are():
    _, totals = run_of(lambda _: 0, 100, kind=TIMESTAMP_LOG_APPEND_TIME)
    assert totals.unmeasured == ""


def test_one_partition_with_copied_times_is_enough():
    _, totals = run_of(lambda n: 0 if n % 8 == 3 else 30 + n * n % 97, 400, partitions=8)
    assert "50 of 400 timestamps in out are exactly that of the input" in totals.unmeasured


def test_what_was_seen_before_a_restart_counts():
    for count in (20, 1_000):
        _, totals = run_of(lambda _: 0, count, saves=True)
        assert totals.unmeasured.startswith(f"{count} of {count} timestamps in out")


def test_the_end_of_a_window_is_no_time_of_publishing():
    window = {"start": "value.start", "end": "value.end"}
    watch = a_watch(
        inputs=[{"topic": "in", "format": "json", "time": "value.at"}],
        outputs=[{"topic": "out", "format": "json", **window}],
        relation={"kind": "window", **RELATION},
        begin="earliest",
    )

    def totals(publish_ms):
        found = Watched(watch, 0, clock=lambda: START_MS)
        begin_ms = (START_MS - 100_000) // 700 * 700
        for number in range(30):
            start_ms, kind = begin_ms + 700 * number, {"kind": TIMESTAMP_CREATE_TIME}
            at = start_ms + number * number % 600
            value = json.dumps({"at": at}).encode()
            found.take("in", [message("in", value, b"k", at, offset=number, **kind)])
            value = json.dumps({"start": start_ms, "end": start_ms + 700}).encode()
            output_ms = start_ms + 700 + publish_ms(number)
            found.take("out", [message("out", value, b"k", output_ms, offset=number, **kind)])
        list(found.advance(START_MS))
        return found.counting.end(found.counting.run_of(START_MS - 100_000))

    assert "1 ms before the end of the window" in totals(lambda _: -1).unmeasured
    assert totals(random_ms(3, 90)).unmeasured == ""
