"""Increases of counters, from their values."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.collector.sources import COUNTER, GAUGE, Increases, Sample

pytestmark = pytest.mark.unit


def counter(value, **labels):
    return Sample("c_total", labels, COUNTER, value)


def test_a_counter_grows_by_the_difference_and_the_first_value_says_nothing():
    increases = Increases()
    assert increases.of([counter(5.0)]) == [None]
    assert increases.of([counter(12.5)]) == [7.5]
    assert increases.of([counter(12.5)]) == [0.0]


def test_a_counter_that_began_again_grew_by_what_it_shows():
    increases = Increases()
    increases.of([counter(1000.0)])
    assert increases.of([counter(3.0)]) == [3.0]
    assert increases.of([counter(10.0)]) == [7.0]


def test_series_are_told_apart_by_their_labels_in_any_order():
    increases = Increases()
    increases.of([counter(1.0, a="x", b="y"), counter(10.0, a="y", b="x")])
    now = [counter(12.0, b="x", a="y"), counter(4.0, b="y", a="x")]
    assert increases.of(now) == [2.0, 3.0]


def test_a_series_that_was_not_there_before_begins_anew():
    increases = Increases()
    increases.of([counter(1.0)])
    assert increases.of([]) == []
    assert increases.of([counter(9.0)]) == [None]


def test_only_counters_have_an_increase():
    increases = Increases()
    gauge = Sample("g", {}, GAUGE, 1.0)
    increases.of([gauge])
    assert increases.of([gauge]) == [None]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2))
def test_no_increase_is_negative_or_infinite_whatever_a_counter_shows(values):
    increases = Increases()
    increases.of([counter(values[0])])
    for value in values[1:]:
        (grown,) = increases.of([counter(value)])
        assert 0 <= grown <= sys.float_info.max
