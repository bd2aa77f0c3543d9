"""What happens to the load when the Kafka client cannot take it."""

import threading
from collections import Counter

import numpy as np
import pytest

from schemas import codec
from schemas.faults import KINDS, Faults, kinds
from schemas.protocol import PhasePlan, Phases
from services.generator.librdkafka import ClientError
from services.generator.outlet import linger_ms
from services.generator.prefetch import PlannedLoad
from services.generator.sender import BatchCursor, LoadThread, wake_us
from services.generator.settings import GeneratorSettings
from services.generator.statistics import Statistics
from tests.unit.generator.made import a_load, a_plan

pytestmark = pytest.mark.unit

PLAN = PhasePlan(load_start_ms=1000, phases=Phases(warm_up_s=0, measure_s=1, cool_down_s=3))
SETTINGS = GeneratorSettings(generator_delivery_timeout_s=1, generator_backlog_records=10_000)
RATE = 100


class FakeOutlet:
    """Keeps what it is given while `takes()` allows; acknowledges at once."""

    trouble = ""

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
            self.sequences.append(codec.decode(batch.record(position)[1])[1]["sequence"])
            self._delivered(int(batch.seconds[position]), 1, 0)
        return stop

    def flush(self, timeout_s):
        return 0

    def purge(self):
        pass

    def close(self):
        pass


class FakeClock:
    """Each reading is `step_us` later than the one before; sleeping takes no time but its own."""

    def __init__(self, step_us):
        self._now_us = PLAN.load_start_ms * 1000
        self._step_us = step_us

    def __call__(self):
        self._now_us += self._step_us
        return self._now_us

    def sleep(self, seconds):
        self._now_us += int(seconds * 1e6)


def run_load(outlet, step_us=50, **fields):
    plan = a_plan(RATE, **fields)
    load = PlannedLoad(plan, PLAN.load_start_ms, PLAN.phases.total_s)
    statistics = Statistics(plan.shape, PLAN, plan.shard)
    clock = FakeClock(step_us)
    thread = LoadThread(load, statistics, outlet, SETTINGS, clock, sleep=clock.sleep)
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
    outlet = FakeOutlet()
    assert totals_of(*run_load(outlet)) == (400, 400, 400, 0)
    assert by_topic(outlet.sequences) == [list(range(0, 400, 2)), list(range(1, 400, 2))]


def test_records_wait_in_order_while_the_queue_is_full():
    refusals = iter([False] * 300)
    outlet = FakeOutlet(takes=lambda: next(refusals, True))
    thread, statistics = run_load(outlet)
    assert totals_of(thread, statistics) == (400, 400, 400, 0)
    assert by_topic(outlet.sequences) == [list(range(0, 400, 2)), list(range(1, 400, 2))]


def test_what_never_finds_room_is_counted_as_failed():
    outlet = FakeOutlet(takes=lambda: False)
    assert totals_of(*run_load(outlet, step_us=20_000)) == (400, 0, 0, 400)


def test_a_stopped_load_sends_nothing_more():
    begun = threading.Event()
    thread, _ = run_load(FakeOutlet(takes=lambda: begun.set() or False), step_us=1)
    assert begun.wait(30)
    thread.stop()
    assert thread.finished.is_set()
    assert thread.error is None


def test_a_producer_that_cannot_go_on_ends_the_load_with_its_error():
    def takes():
        raise ClientError("fenced")

    thread, _ = run_load(FakeOutlet(takes))
    assert thread.finished.wait(30)
    assert str(thread.error) == "fenced"


def test_an_instance_sends_its_share_only():
    outlet = FakeOutlet()
    assert totals_of(*run_load(outlet, shard=(1, 3))) == (134, 134, 134, 0)
    assert sorted(outlet.sequences)[:4] == [2, 3, 8, 9]


def test_the_faults_that_were_sent_are_counted_and_doubles_count_nowhere_else():
    outlet = FakeOutlet()
    faults = Faults(late=0.2, late_ms=100, duplicate=0.3, impossible=0.1)
    thread, statistics = run_load(outlet, faults=faults, seed=5)
    assert totals_of(thread, statistics) == (400, 400, 400, 0)
    counts = Counter(KINDS[kind] for kind in kinds(faults, 5, np.arange(400)).tolist())
    del counts["none"]
    assert statistics.faults == counts
    assert Counter(outlet.sequences).total() == 400 + counts["duplicate"]


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
