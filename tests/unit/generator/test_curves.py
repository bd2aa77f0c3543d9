"""Load shapes other than a constant rate: exact for every duration, division and tick."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.load import Constant, RampUp, SingleBurst, Steps, Together, load_of
from services.generator.shapes import GridShape, ReplayShape, shape_of
from tests.unit.generator.loads import all_loads, rates, seconds
from tests.unit.generator.made import records_between

pytestmark = pytest.mark.unit

S = 1_000_000


def counts(load, *times_s):
    """Records between consecutive times, seconds."""
    shape = shape_of(load_of(**load))
    return [records_between(shape, int(a * S), int(b * S)) for a, b in pairwise(times_s)]


@pytest.mark.parametrize(
    ("why", "load", "times_s", "records"),
    [
        (
            "a ramp from 0 to 1000 has half of that on average, then stays",
            {"shape": "ramp", "rate_per_second": 1000, "for_s": 10},
            (0, 5, 10, 11),
            [1250, 3750, 1000],
        ),
        (
            "a ramp may go down",
            {"shape": "ramp", "from_rate_per_second": 1000, "rate_per_second": 200, "for_s": 8},
            (0, 4, 8, 9),
            [3200, 1600, 200],
        ),
        (
            "steps last step_s each, the last one for ever",
            {"shape": "steps", "rates_per_second": (100, 300, 200), "step_s": 2},
            (0, 2, 4, 6, 7),
            [200, 600, 400, 200],
        ),
        (
            "a spike is higher for a while",
            {
                "shape": "spike",
                "rate_per_second": 100,
                "peak_rate_per_second": 900,
                "at_s": 3,
                "peak_s": 1,
            },
            (0, 3, 4, 5),
            [300, 900, 100],
        ),
        (
            "a whole sine wave has the mean rate; its first half has more by amplitude·period/π",
            {
                "shape": "sine",
                "rate_per_second": 1000,
                "amplitude_per_second": 500,
                "period_s": 10,
            },
            (0, 10, 15, 20),
            [10_000, 5000 + 1592, 5000 - 1592],
        ),
        (
            "fluctuating is high, low, high; low is a third",
            {"shape": "fluctuating", "rate_per_second": 840, "period_s": 2},
            (0, 2, 4, 6),
            [1680, 560, 1680],
        ),
        (
            "a single burst comes first and within its time",
            {"shape": "single_burst", "rate_per_second": 100, "burst_records": 5000},
            (0, 0.175, 1, 2),
            [5018, 82, 100],
        ),
        (
            "bursts come at the end of every period",
            {
                "shape": "periodic_burst",
                "rate_per_second": 400,
                "burst_records": 38_000,
                "period_s": 10,
            },
            (0, 10, 10.175, 20, 20.175, 30),
            [4000, 38_070, 3930, 38_070, 3930],
        ),
        (
            "parts follow each other, the last one goes on",
            {
                "shape": "sequence",
                "parts": (
                    {"shape": "ramp", "rate_per_second": 1000, "for_s": 2},
                    {"rate_per_second": 10, "for_s": 3},
                    {"rate_per_second": 500},
                ),
            },
            (0, 2, 5, 6),
            [1000, 30, 500],
        ),
        (
            "parts of a sum add up; one with an end ends",
            {
                "shape": "sum",
                "parts": ({"rate_per_second": 100}, {"rate_per_second": 7, "for_s": 2}),
            },
            (0, 2, 4),
            [214, 200],
        ),
        (
            "sequences may hold sums",
            {
                "shape": "sequence",
                "parts": (
                    {
                        "shape": "sum",
                        "parts": ({"rate_per_second": 100}, {"rate_per_second": 50}),
                        "for_s": 2,
                    },
                    {"rate_per_second": 1},
                ),
            },
            (0, 2, 4),
            [300, 2],
        ),
    ],
)
def test_a_shape_has_the_records_it_promises(why, load, times_s, records):
    assert counts(load, *times_s) == records, why


@given(all_loads(), st.integers(0, 60 * S))
@settings(deadline=None, max_examples=200)
def test_due_is_the_inverse_of_scheduled(load, elapsed_us):
    shape = shape_of(load)
    due = shape.due(elapsed_us)
    if due:
        assert shape.scheduled_us(np.array([due - 1]))[0] <= elapsed_us
    next_us = int(shape.scheduled_us(np.array([due]))[0])
    assert next_us > elapsed_us
    if next_us < 100 * S:
        assert shape.due(next_us) > due
        assert shape.due(next_us - 1) <= due


@given(all_loads(), st.lists(st.integers(0, 60 * S), min_size=2))
@settings(deadline=None)
def test_any_ticks_split_a_load_without_gap_or_overlap(load, times):
    shape = shape_of(load)
    cuts = sorted(times)
    parts = [records_between(shape, a, b) for a, b in pairwise(cuts)]
    assert min(parts) >= 0
    assert sum(parts) == records_between(shape, cuts[0], cuts[-1])


@given(all_loads(), st.integers(1, 20))
@settings(deadline=None, max_examples=50)
def test_scheduled_times_are_the_same_together_and_one_by_one(load, duration_s):
    shape = shape_of(load)
    numbers = np.arange(0, shape.due(duration_s * S), 97)
    together = shape.scheduled_us(numbers)
    assert (np.diff(together) >= 0).all()
    assert together.tolist() == [int(shape.scheduled_us(np.array([k]))[0]) for k in numbers]


@given(rates, seconds)
def test_a_grid_counts_what_a_constant_rate_counts(rate, duration_s):
    constant = shape_of(Constant(rate_per_second=rate))
    grid = shape_of(Steps(rates_per_second=(rate,), step_s=1))
    assert isinstance(grid, GridShape)
    end_us = int(duration_s * 1000) * 1000 - 1
    assert grid.due(end_us) == constant.due(end_us)


@given(rates, rates, seconds, st.integers(1, 40_000))
def test_a_ramp_is_the_area_under_it(start, end, for_s, until_ms):
    load = RampUp(from_rate_per_second=start, rate_per_second=end, for_s=for_s)
    until_s = min(until_ms / 1000, for_s)
    area = start * until_s + (end - start) * until_s**2 / (2 * for_s)
    area += end * (until_ms / 1000 - until_s)
    assert abs(shape_of(load).due(until_ms * 1000 - 1) - area) < 1 + 1e-6


REPLAY = ReplayShape(np.array([0, 10, 10, 25], np.int64), period_us=40, per_time=2)


def test_a_replay_has_its_records_at_the_recorded_times_again_and_again():
    assert REPLAY.scheduled_us(np.arange(10)).tolist() == [0, 0, 10, 10, 10, 10, 25, 25, 40, 40]
    assert [REPLAY.due(t) for t in (-1, 0, 9, 10, 25, 39, 40, 90)] == [0, 2, 2, 6, 8, 8, 10, 22]


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=20),
    st.integers(1, 50),
    st.integers(1, 4),
    st.integers(0, 10_000),
)
def test_a_replays_due_is_the_inverse_of_scheduled(times, more, per_time, elapsed_us):
    times_us = np.array([0, *sorted(times)], np.int64)
    shape = ReplayShape(times_us, int(times_us[-1]) + more, per_time)
    due = shape.due(elapsed_us)
    assert shape.scheduled_us(np.array([due - 1]))[0] <= elapsed_us
    assert shape.scheduled_us(np.array([due]))[0] > elapsed_us


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        ({}, r"constant\.rate_per_second\n.*required"),
        ({"rate_per_second": 1, "period_s": 2}, r"constant\.period_s\n.*not permitted"),
        ({"shape": "ramp", "rate_per_second": 5}, r"ramp\.for_s\n.*required"),
        (
            {"shape": "sine", "rate_per_second": 5, "amplitude_per_second": 6, "period_s": 1},
            "amplitude_per_second must not exceed rate_per_second",
        ),
        (
            {"shape": "sequence", "parts": ({"rate_per_second": 1}, {"rate_per_second": 1})},
            "every part of a sequence but the last needs for_s",
        ),
        (
            {"shape": "sum", "parts": ({"shape": "replay"},)},
            "a replay cannot be part of another load",
        ),
        (
            {
                "shape": "periodic_burst",
                "rate_per_second": 1,
                "burst_records": 5,
                "period_s": 0.1,
            },
            "burst_ms must not be longer than period_s",
        ),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(load, reason):
    with pytest.raises(ValidationError, match=reason):
        load_of(**load)


def test_the_peak_of_a_load_counts_its_bursts():
    burst = SingleBurst(rate_per_second=100, burst_records=350)
    assert burst.peak_per_second == 2100
    both = Together(parts=(burst, Constant(rate_per_second=50)))
    assert both.peak_per_second == 2150


def test_a_load_with_the_fields_of_all_shapes_is_read():
    other = {
        "for_s": 0,
        "period_s": 0,
        "burst_records": 0,
        "burst_ms": 175,
        "speed": 60,
        "parts": [],
    }
    other |= {"low_rate_per_second": None}
    assert load_of(shape="constant", rate_per_second=5, **other) == Constant(rate_per_second=5)
    with pytest.raises(ValidationError, match=r"constant\.speed"):
        load_of(shape="constant", rate_per_second=5, **other | {"speed": 61})
