"""Percentiles of counts equal those of the sorted data."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.percentiles import (
    LATENCIES,
    LEVELS,
    MOST_PARTS,
    PackedCounts,
    quantile,
    ranked,
    shown,
    summary,
)
from schemas.report import Latency
from schemas.threshold import OF_STAGE

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("level", "value"),
    [(0, -3), (0.01, -3), (0.25, -3), (0.26, 5), (0.5, 5), (0.75, 5), (0.76, 40), (1, 40)],
)
def test_a_percentile_of_four_values_is_one_of_them(level, value):
    assert quantile(Counter({5: 2, -3: 1, 40: 1}), level) == value


def test_every_figure_of_a_latency_is_a_field_of_the_report():
    assert [name for name in Latency.model_fields if name in LATENCIES] == [*LATENCIES]
    assert {f"{name}_ms" for name in LATENCIES} <= set(OF_STAGE)


@given(st.lists(st.integers(-1_000, 1_000_000), min_size=1, max_size=300), st.integers(1, 400))
def test_the_figures_of_a_histogram_are_those_of_its_sorted_values(values, times):
    """Against an independent search for the smallest value with enough others at or below it, in
    whole numbers."""
    in_100_000 = {
        **{"min": 0, "p5": 5_000, "p25": 25_000, "p50": 50_000, "p75": 75_000, "p90": 90_000},
        **{"p95": 95_000, "p99": 99_000, "p999": 99_900, "p99999": 99_999, "max": 100_000},
    }
    every = sorted(values * times)
    expected = {
        name: next(v for n, v in enumerate(every, 1) if n * 100_000 >= part * len(every))
        for name, part in in_100_000.items()
    }
    counts = Counter(every)
    assert ranked(counts) == expected
    found = summary(counts)
    assert {name: found[name] for name in expected} == expected
    assert list(found) == [*LATENCIES]


def test_percentiles_are_told_with_a_point():
    told = ["p5", "p25", "p50", "p75", "p90", "p95", "p99", "p99.9", "p99.999"]
    assert [shown(name) for name in LEVELS] == told
    assert shown("mean") == "mean"


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
