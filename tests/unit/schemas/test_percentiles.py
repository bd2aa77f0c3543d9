"""Percentiles of counts equal those of the sorted data."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.percentiles import MOST_PARTS, PackedCounts, quantile

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("level", "value"),
    [(0, -3), (0.01, -3), (0.25, -3), (0.26, 5), (0.5, 5), (0.75, 5), (0.76, 40), (1, 40)],
)
def test_a_percentile_of_four_values_is_one_of_them(level, value):
    assert quantile(Counter({5: 2, -3: 1, 40: 1}), level) == value


def test_nothing_has_no_percentile():
    assert quantile(Counter(), 0.5) is None
    assert quantile(Counter({7: 0}), 0.5) is None


def test_a_value_that_never_occurred_is_no_percentile():
    assert quantile(Counter({1: 0, 2: 3}), 0) == 2


@given(
    st.lists(st.integers(-1_000, 1_000_000), min_size=1, max_size=300),
    st.sampled_from([0.0, 0.001, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0]),
)
def test_a_percentile_has_the_nearest_rank_in_the_sorted_data(values, level):
    rank = max(1, math.ceil(level * len(values)))
    assert quantile(Counter(values), level) == sorted(values)[rank - 1]


@given(st.lists(st.integers(0, 50), min_size=1), st.floats(0, 1), st.floats(0, 1))
def test_a_higher_level_never_has_a_lower_value(values, one, other):
    counts = Counter(values)
    assert quantile(counts, min(one, other)) <= quantile(counts, max(one, other))


@given(
    st.lists(st.dictionaries(st.integers(-1_000, 1_000_000), st.integers(-5, 5)), max_size=40),
)
def test_packed_counts_are_those_of_a_counter(added):
    packed, counter = PackedCounts(), Counter()
    for counts in added:
        packed.add([*counts], [*counts.values()])
        for value, count in counts.items():
            counter[value] += count
    assert packed.counts() == counter
    assert len(packed._parts) <= MOST_PARTS
