"""The load when the Kafka client does not accept records."""

import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.content import KINDS, Faults
from schemas.fault_rules import kinds
from schemas.protocol import PhasePlan, Phases
from services.generator.librdkafka import ClientError
from services.generator.producer_backend import linger_ms
from services.generator.sender import (
    BatchCursor,
    LoadThread,
    PlannedLoad,
    Tick,
    next_wake_us,
    plan_tick,
    wake_us,
)
from services.generator.settings import GeneratorSettings
from services.generator.statistics import Statistics
from tests.traffic import RELEASED
from tests.unit.generator.made import a_load, a_plan

pytestmark = pytest.mark.unit

PLAN = PhasePlan(load_start_ms=1000, phases=Phases(warm_up_s=0, measure_s=1, cool_down_s=3))
SETTINGS = GeneratorSettings(generator_delivery_timeout_s=1, generator_backlog_records=10_000)
RATE = 100


class FakeBackend:
    """Stores messages while `takes()` allows; acknowledges at once."""

    last_error = ""

    def __init__(self, takes=lambda: True):
        self.sequences = []
        self._takes = takes
        self._delivered = None

    def count_into(self, delivered):
        self._delivered = delivered

    def send(self, batch, start, stop):
        for position in range(start, stop):
            if not self._takes():
                return position
            self.sequences.append(RELEASED.decode(batch.record(position)[1])[1]["sequence"])
            self._delivered(int(batch.seconds[position]), 1, 0)
        return stop

    def count_outcomes(self):
        pass

    def flush(self, timeout_s):
        return 0

    def purge(self):
        pass

    def close(self):
        pass


class FakeClock:
    """Each reading is `step_us` later than the one before; sleeping takes exactly its duration."""

    def __init__(self, step_us):
        self.now_us = PLAN.load_start_ms * 1000
        self._step_us = step_us

    def __call__(self):
        self.now_us += self._step_us
        return self.now_us

    def sleep(self, seconds):
        self.now_us += int(seconds * 1e6)


def run_load(backend, step_us=50, clock=None, **fields):
    plan = a_plan(RATE, **fields)
    load = PlannedLoad(plan, PLAN.load_start_ms, PLAN.phases.total_s)
    statistics = Statistics(plan.shape, PLAN, plan.shard)
    clock = clock or FakeClock(step_us)
    thread = LoadThread(load, statistics, backend, SETTINGS, clock, sleep=clock.sleep)
    return thread, statistics


def totals_of(thread, statistics):
    assert thread.finished.wait(30)
    events = statistics.take_changes(None)
    totals = statistics.totals
    assert sum(sum(event["counts"]) for event in events) == totals.sent
    return totals.intended, totals.sent, totals.acknowledged, totals.failed


def by_topic(sequences):
    return [[number for number in sequences if number % 2 == kind] for kind in range(2)]


def test_a_load_is_sent_whole_and_in_order():
    backend = FakeBackend()
    assert totals_of(*run_load(backend)) == (400, 400, 400, 0)
    assert by_topic(backend.sequences) == [list(range(0, 400, 2)), list(range(1, 400, 2))]


def test_a_load_that_is_shortened_ends_earlier_and_its_seconds_have_the_new_phases():
    """The warm-up is shortened from ten seconds to one; one second is measured, and three are the
    cool-down."""
    phases = Phases(warm_up_s=10, measure_s=1, cool_down_s=3)
    long = PhasePlan(load_start_ms=1000, phases=phases)
    short = long.model_copy(update={"phases": phases.model_copy(update={"warm_up_s": 1})})
    plan, clock = a_plan(RATE), FakeClock(50)
    load = PlannedLoad(plan, long.load_start_ms, long.phases.total_s)
    statistics = Statistics(plan.shape, long, plan.shard)
    backend = FakeBackend()
    replanned = threading.Event()

    def first_second():
        if len(backend.sequences) == RATE // 2:
            thread.replan(short)
            replanned.set()
        return True

    backend._takes = first_second
    thread = LoadThread(load, statistics, backend, SETTINGS, clock, sleep=clock.sleep)
    assert thread.finished.wait(30)
    assert replanned.is_set()
    seconds = statistics.take_changes(None)
    assert [(one["second"], one["phase"]) for one in seconds] == [
        (1_000, "warm_up"),
        (2_000, "measure"),
        (3_000, "cool_down"),
        (4_000, "cool_down"),
        (5_000, "cool_down"),
    ]
    assert len(backend.sequences) == 5 * RATE


def test_records_wait_in_order_while_the_queue_is_full():
    refusals = iter([False] * 300)
    backend = FakeBackend(takes=lambda: next(refusals, True))
    thread, statistics = run_load(backend)
    assert totals_of(thread, statistics) == (400, 400, 400, 0)
    assert by_topic(backend.sequences) == [list(range(0, 400, 2)), list(range(1, 400, 2))]


def full_for(us, clock):
    """A queue that is full from 100 ms of the load on, for this long."""
    begin_us = PLAN.load_start_ms * 1000 + 100_000
    return lambda: not begin_us <= clock.now_us < begin_us + us


def delays_of(load):
    """Seconds of send delays, all records together, and how many of them with a full queue."""
    thread, statistics = load
    assert thread.finished.wait(30)
    events = statistics.take_changes(None)
    delays_us = sum(np.dot(event["send_delays_us"], event["counts"]) for event in events)
    return delays_us / 1e6, sum(event["queue_full_us"] for event in events) / 1e6


def test_the_time_in_which_the_queue_was_full_is_told():
    clock = FakeClock(50)
    delays_s, full_s = delays_of(run_load(FakeBackend(full_for(500_000, clock)), clock=clock))
    # 50 records are due in half a second, and wait for half of it on average.
    assert delays_s == pytest.approx(12.5, abs=1)
    assert full_s == pytest.approx(delays_s, rel=0.02)


def test_a_generator_that_does_not_run_does_not_blame_the_queue():
    """The queue is full for 10 ms, and in the middle the generator gets no time for 500 ms."""
    clock = FakeClock(50)
    stopped_until_us = PLAN.load_start_ms * 1000 + 605_000

    def sleep(seconds):
        clock.now_us += int(seconds * 1e6)
        if stopped_until_us - 500_000 < clock.now_us < stopped_until_us:
            clock.now_us = stopped_until_us

    clock.sleep = sleep
    delays_s, full_s = delays_of(run_load(FakeBackend(full_for(510_000, clock)), clock=clock))
    assert delays_s == pytest.approx(12.5, abs=1)
    assert full_s < 0.1 * delays_s


def test_what_never_finds_room_is_counted_as_failed():
    backend = FakeBackend(takes=lambda: False)
    assert totals_of(*run_load(backend, step_us=20_000)) == (400, 0, 0, 400)


def test_a_stopped_load_sends_nothing_more():
    begun = threading.Event()
    thread, _ = run_load(FakeBackend(takes=lambda: begun.set() or False), step_us=1)
    assert begun.wait(30)
    thread.stop()
    assert thread.finished.is_set()
    assert thread.error is None


def test_a_producer_that_cannot_go_on_ends_the_load_with_its_error():
    def takes():
        raise ClientError("fenced")

    thread, _ = run_load(FakeBackend(takes))
    assert thread.finished.wait(30)
    assert str(thread.error) == "fenced"


def test_an_instance_sends_its_share_only():
    backend = FakeBackend()
    assert totals_of(*run_load(backend, shard=(1, 3))) == (134, 134, 134, 0)
    assert sorted(backend.sequences)[:4] == [2, 3, 8, 9]


def test_the_faults_that_were_sent_are_counted_and_doubles_count_nowhere_else():
    backend = FakeBackend()
    faults = Faults(late=0.2, late_ms=100, duplicate=0.3, impossible=0.1)
    thread, statistics = run_load(backend, faults=faults, seed=5)
    assert totals_of(thread, statistics) == (400, 400, 400, 0)
    counts = Counter(KINDS[kind] for kind in kinds(faults, 5, np.arange(400)).tolist())
    del counts["none"]
    assert statistics.faults == counts
    assert Counter(backend.sequences).total() == 400 + counts["duplicate"]


def test_due_records_of_both_topics_are_dealt_with_oldest_first():
    batches = next(a_load(RATE, 1).prepared()).batches
    cursors = [BatchCursor(batch) for batch in batches]
    # Even records are due at 0, 20, 40 … ms, odd ones at 10, 30, 50 … ms.
    assert [each.due(30_000) for each in cursors] == [2, 2]
    assert [each.due(29_999) for each in cursors] == [2, 1]
    assert wake_us(cursors, -5) == 0
    cursors[0].position = 2
    assert [each.due(39_999) for each in cursors] == [0, 2]


@pytest.mark.parametrize(
    ("rate", "configured", "expected"),
    [(400, None, 0), (19_999, None, 0), (20_000, None, 2), (400, 7.5, 7.5), (50_000, 0, 0)],
)
def test_only_a_crowded_load_waits_to_fill_batches(rate, configured, expected):
    assert linger_ms(rate, configured) == expected


@pytest.mark.parametrize(
    ("why", "due", "later", "tick"),
    [
        ("nothing is due", 0, 0, Tick(0, 0)),
        ("one is due", 1, 0, Tick(0, 1)),
        ("more is due than goes out at once", 40, 0, Tick(0, 20)),
        ("more waits than may wait: the oldest are given up", 60, 60, Tick(20, 20)),
        ("all of the slice is too old", 45, 400, Tick(45, 0)),
    ],
)
def test_a_tick_sends_what_is_due_within_bounds(why, due, later, tick):
    assert plan_tick(due, later, backlog_records=100, limit=20) == tick, why


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_tick_never_deals_with_more_than_is_due(due, later, backlog):
    tick = plan_tick(due, later, backlog, 5_000)
    assert tick.give_up >= 0
    assert tick.send >= 0
    assert tick.give_up + tick.send <= due


@pytest.mark.parametrize(
    ("why", "next_due_us", "soon", "elapsed_us", "wake_us"),
    [
        ("a low rate wakes at the record's own time", 2_500, 0, 60, 2_500),
        ("so does a rate of 2 000", 500, 2, 40, 500),
        ("a high rate wakes for a whole tick", 10, 100, 5, 1_005),
        ("an hour may pass", 3_600_000_000, 0, 1, 3_600_000_000),
    ],
)
def test_the_next_wake_is_the_records_time_or_the_next_tick(
    why, next_due_us, soon, elapsed_us, wake_us
):
    assert next_wake_us(next_due_us, soon, elapsed_us) == wake_us, why
