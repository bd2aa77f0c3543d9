"""When records are due."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.generator.shapes import ConstantShape, Slice, shape_of, slices
from tests.unit.generator.loads import all_loads
from tests.unit.generator.made import records_between

pytestmark = pytest.mark.unit

rates = st.floats(0.001, 10_000_000, allow_nan=False)
YEAR_US = 31_536_000_000_000


@pytest.mark.parametrize(
    ("rate", "index", "scheduled_us"),
    [
        (400, 0, 0),
        (400, 1, 2_500),
        (400, 400, 1_000_000),
        (3, 1, 333_333),
        (3, 2, 666_666),
        (3, 3, 1_000_000),
        (0.5, 1, 2_000_000),
        (333.3, 3_333, 10_000_000),
        (333.3, 1, 3_000),
        (10_000_000, 5, 0),
        (10_000_000, 315_360_000_000_000, 31_536_000_000_000),
    ],
)
def test_record_k_is_scheduled_at_k_over_the_rate_rounded_down(rate, index, scheduled_us):
    assert ConstantShape(rate).scheduled_us(np.array([index])).tolist() == [scheduled_us]


@pytest.mark.parametrize(
    ("rate", "elapsed_us", "due"),
    [
        (400, -1, 0),
        (400, 0, 1),
        (400, 2_499, 1),
        (400, 2_500, 2),
        (400, 999_999, 400),
        (400, 1_000_000, 401),
        (3, 333_332, 1),
        (3, 333_333, 2),
        (0.5, 1_999_999, 1),
        (0.5, 2_000_000, 2),
        (333.3, 9_999_999, 3_333),
        (10_000_000, 0, 10),
    ],
)
def test_records_are_due_at_their_time_and_not_before(rate, elapsed_us, due):
    assert ConstantShape(rate).due(elapsed_us) == due


@given(rates, st.integers(0, YEAR_US))
def test_due_is_the_inverse_of_scheduled_at_any_rate_for_a_year(rate, elapsed_us):
    shape = ConstantShape(rate)
    due = shape.due(elapsed_us)
    last_due_us, next_us = shape.scheduled_us(np.array([due - 1, due])).tolist()
    assert last_due_us <= elapsed_us < next_us
    assert shape.due(next_us) > due
    assert shape.due(next_us - 1) <= due


@given(rates, st.lists(st.integers(0, 10**9), min_size=2))
def test_any_ticks_split_a_load_without_gap_or_overlap(rate, times):
    shape = ConstantShape(rate)
    cuts = sorted(times)
    parts = [records_between(shape, a, b) for a, b in pairwise(cuts)]
    assert min(parts) >= 0
    assert sum(parts) == records_between(shape, cuts[0], cuts[-1])


@pytest.mark.parametrize("rate", [1, 2, 400, 333.3, 0.5, 999_983])
def test_a_constant_rate_fills_ten_seconds_with_ten_times_the_rate(rate):
    assert records_between(ConstantShape(rate), 0, 10_000_000) == 10 * rate


def test_a_rate_below_the_resolution_is_refused():
    with pytest.raises(ValueError, match=r"below 0\.001"):
        ConstantShape(0.0001)


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
