"""What happens to the load when the Kafka client cannot take it."""

import threading

import pytest
from confluent_kafka import KafkaException

from schemas import codec
from schemas.protocol import PhasePlan, Phases
from services.generator.ahead import Content, Load
from services.generator.pacing import slices
from services.generator.sample import read_sample
from services.generator.sender import LoadThread
from services.generator.sending import RecordSender, linger_ms
from services.generator.settings import GeneratorSettings
from services.generator.shapes import ConstantShape
from services.generator.statistics import SecondTally, Statistics

pytestmark = pytest.mark.unit

SAMPLE = read_sample()
PLAN = PhasePlan(load_start_ms=1000, phases=Phases(warm_up_s=0, measure_s=1, cool_down_s=3))
SETTINGS = GeneratorSettings(generator_delivery_timeout_s=1, generator_backlog_records=10_000)
RATE = 100


class FakeProducer:
    """Keeps what it is given while `takes()` allows; acknowledges when polled or flushed."""

    def __init__(self, takes=lambda: True):
        self.sequences = []
        self._takes = takes
        self._callbacks = []

    def produce(self, topic, value, key, on_delivery):
        if not self._takes():
            raise BufferError
        self.sequences.append(codec.decode(value)[1]["sequence"])
        self._callbacks.append(on_delivery)

    def poll(self, timeout):
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(None, None)
        return len(callbacks)

    def flush(self, timeout):
        self.poll(0)
        return 0

    def purge(self):
        self._callbacks.clear()


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


def run_load(producer, step_us=50):
    shape = ConstantShape(RATE)
    load = Load(Content(SAMPLE), shape, "r1", PLAN.load_start_ms, PLAN.phases.total_s)
    statistics = Statistics(shape, PLAN)
    clock = FakeClock(step_us)
    thread = LoadThread(load, statistics, producer, SETTINGS, clock, sleep=clock.sleep)
    return thread, statistics


def totals_of(thread, statistics):
    assert thread.finished.wait(30)
    events = statistics.take_changes(None)
    totals = statistics.totals
    assert sum(sum(event["counts"]) for event in events) == totals.sent
    return totals.intended, totals.sent, totals.acknowledged, totals.failed


def test_a_load_is_sent_whole_and_in_order():
    producer = FakeProducer()
    assert totals_of(*run_load(producer)) == (400, 400, 400, 0)
    assert producer.sequences == list(range(400))


def test_records_wait_in_order_while_the_queue_is_full():
    refusals = iter([False] * 300)
    producer = FakeProducer(takes=lambda: next(refusals, True))
    thread, statistics = run_load(producer)
    assert totals_of(thread, statistics) == (400, 400, 400, 0)
    assert producer.sequences == list(range(400))


def test_what_never_finds_room_is_counted_as_failed():
    producer = FakeProducer(takes=lambda: False)
    assert totals_of(*run_load(producer, step_us=20_000)) == (400, 0, 0, 400)


def test_a_stopped_load_sends_nothing_more():
    begun = threading.Event()
    thread, _ = run_load(FakeProducer(takes=lambda: begun.set() or False), step_us=1)
    assert begun.wait(30)
    thread.stop()
    assert thread.finished.is_set()
    assert thread.error is None


def test_a_producer_that_cannot_go_on_ends_the_load_with_its_error():
    def takes():
        raise KafkaException("fenced")

    thread, _ = run_load(FakeProducer(takes))
    assert thread.finished.wait(30)
    assert str(thread.error) == "fenced"


def test_sending_stops_at_the_record_that_finds_the_queue_full():
    shape = ConstantShape(RATE)
    load = Load(Content(SAMPLE), shape, "r1", 1000, 1)
    prepared = load.prepare(next(slices(shape, 1)))
    room = iter([True, True, False, True, True])
    producer = FakeProducer(takes=lambda: next(room))
    tally = SecondTally(1000, "measure", 100)
    sender = RecordSender(producer, clock=lambda: 1_025_000)
    assert sender.send(prepared, 0, 4, tally) == 2
    assert sender.send(prepared, 2, 4, tally) == 4
    assert producer.sequences == [0, 1, 2, 3]
    # Scheduled 0, 10, 20 and 30 ms after the start, sent 25 ms after it.
    assert tally.delays_us == [25_000, 15_000, 5_000, -5_000]


@pytest.mark.parametrize(
    ("rate", "configured", "expected"),
    [(400, None, 0), (19_999, None, 0), (20_000, None, 2), (400, 7.5, 7.5), (50_000, 0, 0)],
)
def test_only_a_crowded_load_waits_to_fill_batches(rate, configured, expected):
    assert linger_ms(rate, configured) == expected
