"""Intervals from resampling."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.bootstrap import Histograms, figure_difference, median_confidence, median_interval

pytestmark = pytest.mark.unit


def seconds(*rows: dict[int, int]) -> Histograms:
    values = sorted({value for row in rows for value in row})
    counts = [[float(row.get(value, 0)) for value in values] for row in rows]
    return Histograms(np.array(values, dtype=np.float64), np.array(counts))


def normal(seed: int, mean: float, length: int = 60) -> Histograms:
    """Seconds with twenty outputs each of some 10 % spread."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(length):
        drawn = np.round(random.normal(mean, mean / 10, 20)).astype(int)
        values, counts = np.unique(drawn, return_counts=True)
        rows.append(dict(zip(values.tolist(), counts.tolist(), strict=True)))
    return seconds(*rows)


def test_the_median_of_one_run_has_no_interval() -> None:
    found = median_interval([5.0])
    assert (found.value, found.low, found.high) == (5.0, None, None)
    assert not found.excludes_zero


def test_the_interval_of_five_runs_spans_them_and_of_many_is_narrow() -> None:
    five = median_interval([8.0, 9.0, 10.0, 11.0, 30.0])
    assert (five.low, five.value, five.high) == (8.0, 10.0, 30.0)
    many = median_interval([10.0 + n % 3 for n in range(99)])
    assert (many.low, many.value, many.high) == (11.0, 11.0, 11.0)


def test_the_interval_of_few_runs_holds_as_often_as_its_confidence_says() -> None:
    random = np.random.default_rng(7)
    for runs, confidence in ((2, 0.5), (3, 0.75), (4, 0.875), (5, 0.9375)):
        drawn = random.normal(size=(400, runs))
        assert median_interval(drawn[0].tolist()).low == drawn[0].min()
        assert median_interval(drawn[0].tolist()).high == drawn[0].max()
        holds = np.mean((drawn.min(axis=1) <= 0) & (drawn.max(axis=1) >= 0))
        assert median_confidence(runs) == confidence
        assert abs(holds - confidence) < 0.08
    assert (median_confidence(1), median_confidence(6)) == (None, 0.95)


@pytest.mark.parametrize("runs", [6, 7, 8, 9, 12, 17, 30])
def test_the_interval_of_more_runs_holds_at_least_in_95_of_100(runs: int) -> None:
    random = np.random.default_rng(runs)
    found = [median_interval(random.exponential(size=runs).tolist()) for _ in range(2_000)]
    true = np.log(2)
    holds = np.mean([one.low <= true <= one.high for one in found if one.low and one.high])
    assert holds >= 0.94
    assert median_confidence(runs) == 0.95


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=20))
def test_the_median_lies_within_its_interval_and_that_within_the_values(
    values: list[float],
) -> None:
    found = median_interval(values)
    assert found.low is not None
    assert found.high is not None
    assert min(values) <= found.low <= found.value <= found.high <= max(values)


def test_the_same_data_give_the_same_interval() -> None:
    assert median_interval([1.0, 2.0, 5.0]) == median_interval([1.0, 2.0, 5.0])


def test_quantiles_are_nearest_rank_over_all_seconds() -> None:
    both = seconds({1: 50, 9: 1}, {2: 49})
    every = np.ones((1, 2))
    assert [both.quantile(level, every)[0] for level in (0.5, 0.99, 1.0)] == [1, 2, 9]


def test_nearly_always_no_difference_is_told_where_there_is_none() -> None:
    told = [
        figure_difference(normal(seed, 100), normal(seed + 50, 100), 0.5, paired=False)
        for seed in range(20)
    ]
    assert sum(one.excludes_zero for one in told) <= 1


def test_a_difference_of_a_tenth_is_told_with_its_size() -> None:
    found = figure_difference(normal(1, 100), normal(2, 110), 0.5, paired=False)
    assert found.excludes_zero
    assert found.value == pytest.approx(10, abs=2)


def test_a_mean_is_over_all_outputs_and_has_an_interval_like_a_percentile() -> None:
    both = seconds({1: 3, 9: 1}, {2: 4})
    assert both.mean(np.array([[1.0, 1.0], [0.0, 2.0], [0.0, 0.0]])).tolist()[:2] == [2.5, 2.0]
    assert np.isnan(both.mean(np.zeros((1, 2)))[0])
    found = figure_difference(normal(1, 100), normal(2, 110), None, paired=False)
    assert found.value == pytest.approx(10, abs=1)
    assert found.low is not None
    assert 8 < found.low < found.value
    same = [
        figure_difference(normal(seed, 100), normal(seed + 50, 100), None, paired=False)
        for seed in range(20)
    ]
    assert sum(one.excludes_zero for one in same) <= 1


def test_what_disturbs_both_pipelines_of_a_run_cancels_out() -> None:
    base = [100 + 80 * (at_s // 5 % 2) for at_s in range(60)]
    before = seconds(*[{ms: 20} for ms in base])
    after = seconds(*[{ms + 3: 20} for ms in base])
    assert figure_difference(before, after, 0.5, paired=True).excludes_zero
    assert not figure_difference(before, after, 0.5, paired=False).excludes_zero


def test_too_few_seconds_have_no_interval() -> None:
    short = normal(1, 100, length=9)
    assert figure_difference(short, short, 0.5, paired=True).low is None
