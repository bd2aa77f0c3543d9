"""What to do when."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.generator.pacing import Slice, Tick, next_wake_us, plan_tick, slices
from services.generator.shapes import ConstantShape

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("why", "due", "position", "end", "tick"),
    [
        ("nothing is due", 5, 5, 10, Tick(0, 0)),
        ("one is due", 6, 5, 10, Tick(0, 1)),
        ("what is due reaches beyond the slice", 12, 5, 10, Tick(0, 5)),
        ("more is due than goes out at once", 40, 5, 50, Tick(0, 20)),
        ("more waits than may wait: the oldest are given up", 125, 5, 200, Tick(20, 20)),
        ("all of the slice is too old", 500, 5, 50, Tick(45, 0)),
    ],
)
def test_a_tick_sends_what_is_due_in_order_and_within_bounds(why, due, position, end, tick):
    assert plan_tick(due, position, end, backlog_records=100, limit=20) == tick, why


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_tick_never_reaches_beyond_what_is_due_or_the_slice(due, position, end, backlog):
    tick = plan_tick(due, position, end, backlog, 5_000)
    assert tick.give_up >= 0
    assert tick.send >= 0
    assert position + tick.give_up + tick.send <= max(position, min(due, end))


@pytest.mark.parametrize(
    ("why", "rate", "position", "elapsed_us", "wake_us"),
    [
        ("a low rate wakes at the record's own time", 400, 1, 60, 2_500),
        ("so does a rate of 2 000", 2_000, 1, 40, 500),
        ("a high rate wakes for a whole tick", 100_000, 1, 5, 1_005),
        ("an hour may pass", 0.001, 1, 0, 1_000_000_000),
    ],
)
def test_the_next_wake_is_the_records_time_or_the_next_tick(
    why, rate, position, elapsed_us, wake_us
):
    assert next_wake_us(ConstantShape(rate), position, elapsed_us) == wake_us, why


def test_slices_cut_each_second_at_the_limit():
    assert list(slices(ConstantShape(10), seconds=2, limit=6)) == [
        Slice(second=0, first=0, offset=0, records=6, records_in_second=10),
        Slice(second=0, first=6, offset=6, records=4, records_in_second=10),
        Slice(second=1, first=10, offset=0, records=6, records_in_second=10),
        Slice(second=1, first=16, offset=6, records=4, records_in_second=10),
    ]


@given(st.floats(0.1, 5_000), st.integers(1, 20), st.integers(1, 500).map(lambda n: 2 * n))
@settings(deadline=None)
def test_slices_hold_every_record_of_the_load_once(rate, seconds, limit):
    shape = ConstantShape(rate)
    position = 0
    for part in slices(shape, seconds, limit):
        assert part.first == position
        assert 0 < part.records <= limit
        position = part.end
    assert position == shape.due(seconds * 1_000_000 - 1)
