"""The published statistics about the schedule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.load import Constant, PeriodicBurst, Together
from schemas.protocol import PhasePlan, Phases
from services.generator.dataset_plan import LoadShard
from services.generator.message_batch import MESSAGE, MessageBatch
from services.generator.shapes import ConstantShape
from services.generator.statistics import Statistics, Totals, histogram, load_summary

pytestmark = pytest.mark.unit

PLAN = PhasePlan(load_start_ms=10_000, phases=Phases(warm_up_s=1, measure_s=1, cool_down_s=3))


def statistics(rate=4, **shard):
    return Statistics(ConstantShape(rate), PLAN, LoadShard(**shard))


def in_second(second, records):
    return np.full(records, second, np.int32)


def send(found, seconds, delays_us, sent_us=5_000_000, **more):
    """Count records of these seconds as sent with these delays, all at one time."""
    seconds = np.asarray(seconds, np.int32)
    due_us = sent_us - np.asarray(delays_us, np.int64)
    none = np.zeros(len(seconds), np.int8)
    batch = MessageBatch("t", due_us, seconds, none, np.zeros(len(seconds), MESSAGE))
    found.sent(batch, slice(0, len(seconds)), sent_us, **more)


def test_delays_are_rounded_down_to_a_tenth_of_a_millisecond():
    assert histogram(np.array([0, 99, 100, 250, 199, -1])) == ([-100, 0, 100, 200], [1, 2, 2, 1])
    assert histogram(np.zeros(0, np.int64)) == ([], [])


def test_a_second_that_is_not_over_is_not_published():
    found = statistics()
    found.open_until(500_000)
    assert found.take_changes(10_999) == []


def test_further_acknowledgements_are_published_as_what_they_add():
    found = statistics()
    found.open_until(1_000_000)
    send(found, in_second(0, 4), [160, 150, 50, 20])
    found.delivered(0, 1, 0)
    assert found.take_changes(11_000) == [
        {
            "phase": "warm_up",
            "second": 10_000,
            "intended": 4,
            "sent": 4,
            "acknowledged": 1,
            "failed": 0,
            "send_delays_us": [0, 100],
            "counts": [2, 2],
            "queue_full_us": 0,
        }
    ]
    found.delivered(0, 2, 0)
    found.delivered(0, 0, 1)
    assert found.take_changes(11_000) == [
        {
            "phase": "warm_up",
            "second": 10_000,
            "intended": 0,
            "sent": 0,
            "acknowledged": 2,
            "failed": 1,
            "send_delays_us": [],
            "counts": [],
            "queue_full_us": 0,
        }
    ]
    assert found.take_changes(12_000)[0]["second"] == 11_000
    assert found.totals == Totals(intended=8, sent=4, acknowledged=3, failed=1)


def test_a_full_queue_delayed_records_from_when_they_were_due_or_it_was_full():
    found = statistics()
    found.open_until(1_000_000)
    send(found, in_second(0, 2), [5_000, 100], full_since_us=5_000_000 - 3_000)
    send(found, in_second(0, 1), [5_000])
    assert found.take_changes(11_000)[0]["queue_full_us"] == 3_000 + 100
    send(found, in_second(0, 1), [50], full_since_us=0)
    assert found.take_changes(11_000)[0]["queue_full_us"] == 50


def test_what_was_due_is_intended_even_when_nothing_was_sent():
    found = statistics()
    found.open_until(60_000_000)
    events = found.take_changes(None)
    assert [event["phase"] for event in events] == [
        "warm_up",
        "measure",
        "cool_down",
        "cool_down",
        "cool_down",
    ]
    assert found.totals.intended == 20


def test_a_second_without_records_is_not_published():
    found = statistics(rate=0.5)
    found.open_until(5_000_000)
    assert [event["second"] for event in found.take_changes(None)] == [10_000, 12_000, 14_000]


@given(st.lists(st.lists(st.booleans(), max_size=4), max_size=6))
def test_events_add_up_whenever_they_are_taken(rounds):
    found = Statistics(ConstantShape(1_000), PLAN)
    found.open_until(0)
    events = []
    for outcomes in rounds:
        send(found, in_second(0, len(outcomes)), [1] * len(outcomes))
        for failed in outcomes:
            found.delivered(0, int(not failed), int(failed))
        events += found.take_changes(11_000)
    flat = [failed for outcomes in rounds for failed in outcomes]
    assert sum(event["sent"] for event in events) == len(flat)
    assert sum(sum(event["counts"]) for event in events) == len(flat)
    assert sum(event["failed"] for event in events) == sum(flat)
    assert sum(event["acknowledged"] for event in events) == len(flat) - sum(flat)


def test_a_second_is_kept_until_all_of_it_is_sent_and_settled():
    found = statistics()
    found.open_until(0)
    found.delivered(0, 4, 0)  # delivery reports may arrive before the sending thread counts them
    assert len(found.take_changes(11_000)) == 1
    send(found, in_second(0, 3), [0, 0, 0])
    found.given_up(in_second(0, 1))
    assert found.take_changes(11_000)[0]["sent"] == 3
    assert found.take_changes(11_000) == []


def test_records_of_several_seconds_may_be_sent_at_once_and_extra_ones_count_nowhere():
    found = statistics()
    found.open_until(1_000_000)
    send(found, [0, 1, -1, 0], [300, 200, 10, 5])
    found.delivered(-1, 1, 0)
    events = found.take_changes(None)
    assert [(event["sent"], event["send_delays_us"]) for event in events] == [
        (2, [0, 300]),
        (1, [200]),
    ]
    assert found.max_delay_us == 300


def test_instances_intend_their_shares():
    parts = [statistics(rate=5, index=index, count=2) for index in range(2)]
    for part in parts:
        part.open_until(60_000_000)
        part.take_changes(None)
    assert [part.totals.intended for part in parts] == [13, 12]


def test_the_largest_delay_is_always_said():
    assert load_summary(Constant(rate_per_second=1), 1_260) == (
        "The largest send delay was 1.3 ms.",
    )


def test_a_burst_says_by_how_much_it_missed_its_time():
    burst = PeriodicBurst(rate_per_second=1, burst_records=38_000, period_s=10)
    load = Together(parts=(burst, Constant(rate_per_second=5)))
    assert load_summary(load, 4_200)[1] == (
        "Bursts of 38000 records within 175 ms were sent within at most 179.2 ms, 4.2 ms late."
    )


def test_the_last_error_of_the_client_is_passed_on():
    assert load_summary(Constant(rate_per_second=1), 0, "no broker")[-1] == (
        "The last error of the Kafka client: no broker."
    )
