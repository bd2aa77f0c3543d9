"""What to do when."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.generator.pacing import Slice, Tick, next_wake_us, plan_tick, slices
from services.generator.shapes import ConstantShape, shape_of
from tests.unit.generator.loads import all_loads

pytestmark = pytest.mark.unit


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


def test_slices_cut_each_second_at_the_limit():
    def part(second, first, records, end_us, event_first):
        return Slice(second, first, records, end_us, second, event_first, 10)

    assert list(slices(ConstantShape(10), seconds=2, limit=6)) == [
        part(0, 0, 6, 600_000, 0),
        part(0, 6, 4, 1_000_000, 0),
        part(1, 10, 6, 1_600_000, 10),
        part(1, 16, 4, 2_000_000, 10),
    ]


def test_slices_cut_at_shorter_seconds_of_event_time_too():
    found = list(slices(ConstantShape(10), seconds=1, event_second_us=400_000))
    assert [(part.event_second, part.records, part.event_records) for part in found] == [
        (0, 4, 4),
        (1, 4, 4),
        (2, 2, 4),
    ]


@given(all_loads(), st.integers(1, 20), st.integers(10, 3_000), st.integers(1, 1_000))
@settings(deadline=None, max_examples=50)
def test_slices_hold_every_record_of_the_load_once(load, seconds, event_second_ms, limit):
    shape = shape_of(load)
    position, end_us = 0, 0
    for part in slices(shape, seconds, event_second_ms * 1000, limit):
        assert part.first == position
        assert part.records <= limit
        assert part.end_us >= end_us
        inside = part.first - part.event_first
        assert 0 <= inside <= inside + part.records <= part.event_records
        position, end_us = part.end, part.end_us
    assert (position, end_us) == (shape.due(seconds * 1_000_000 - 1), seconds * 1_000_000)
