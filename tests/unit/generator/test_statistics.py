"""What is published about how well the schedule was kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.protocol import PhasePlan, Phases
from services.generator.shapes import ConstantShape
from services.generator.statistics import Statistics, Totals, histogram

pytestmark = pytest.mark.unit

PLAN = PhasePlan(load_start_ms=10_000, phases=Phases(warm_up_s=1, measure_s=1, cool_down_s=3))


def statistics(rate=4):
    return Statistics(ConstantShape(rate), PLAN)


def test_delays_are_rounded_down_to_a_tenth_of_a_millisecond():
    assert histogram([0, 99, 100, 250, 199, -1]) == ([-100, 0, 100, 200], [1, 2, 2, 1])
    assert histogram([]) == ([], [])


def test_a_second_that_is_not_over_is_not_published():
    found = statistics()
    found.open_until(500_000)
    assert found.take_changes(10_999) == []


def test_further_acknowledgements_are_published_as_what_they_add():
    found = statistics()
    found.open_until(1_000_000)
    tally = found.tally(0)
    tally.delays_us += [50, 150, 160, 20]
    tally.delivered(None, None)
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
        }
    ]
    for error in (None, None, "timed out"):
        tally.delivered(error, None)
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
        }
    ]
    assert found.take_changes(12_000)[0]["second"] == 11_000
    assert found.totals == Totals(intended=8, sent=4, acknowledged=3, failed=1)


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
    tally = found.tally(0)
    events = []
    for outcomes in rounds:
        tally.delays_us += [1] * len(outcomes)
        for failed in outcomes:
            tally.delivered("error" if failed else None, None)
        events += found.take_changes(11_000)
    flat = [failed for outcomes in rounds for failed in outcomes]
    assert sum(event["sent"] for event in events) == len(flat)
    assert sum(sum(event["counts"]) for event in events) == len(flat)
    assert sum(event["failed"] for event in events) == sum(flat)
    assert sum(event["acknowledged"] for event in events) == len(flat) - sum(flat)
