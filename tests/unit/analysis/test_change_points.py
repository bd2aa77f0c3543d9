"""Change points: detected where they are, and nowhere else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.change_points import (
    ChangePointConfig,
    Split,
    _distances,
    _places,
    change_points,
    clipped,
    likeness,
    order,
)
from tests.unit.analysis.histories import noisy

pytestmark = pytest.mark.unit

STAGES = {"ingest": 5.0, "parse": 8.0, "join": 20.0, "tumbling": 1100.0, "sliding": 4300.0}


@pytest.mark.parametrize("median_ms", STAGES.values(), ids=STAGES)
@pytest.mark.parametrize("kind", ["quiet", "restless"])
def test_twenty_runs_without_a_change_show_none(median_ms: float, kind: str) -> None:
    for seed in range(5):
        assert change_points(noisy(seed, 20, median_ms, kind)) == []


def test_a_millisecond_more_or_less_is_no_change() -> None:
    for seed in range(5):
        assert change_points(noisy(seed, 20, 2, "tiny")) == []


@pytest.mark.parametrize("median_ms", [8.0, 20.0, 1100.0])
@pytest.mark.parametrize("place", [6, 10, 14])
def test_a_slowdown_by_half_is_found_at_its_run(median_ms: float, place: int) -> None:
    values = noisy(1, place, median_ms) + noisy(2, 20 - place, 1.5 * median_ms)
    assert [split.index for split in change_points(values)] == [place]


def test_single_runs_that_were_disturbed_do_not_hide_a_change() -> None:
    values = noisy(3, 12, 100) + noisy(4, 12, 180)
    values[4] *= 6
    values[17] *= 4
    assert [split.index for split in change_points(values)] == [12]


def test_what_got_worse_and_better_again_is_two_changes() -> None:
    values = noisy(5, 12, 100) + noisy(6, 12, 170) + noisy(7, 12, 100)
    assert [split.index for split in change_points(values)] == [12, 24]


def test_a_real_change_that_is_too_small_to_matter_is_not_reported() -> None:
    values = [100.0, 101.0] * 10 + [103.0, 104.0] * 10
    assert change_points(values) == []
    assert [
        split.index for split in change_points(values, ChangePointConfig(least_ratio=0.02))
    ] == [20]


def test_three_runs_are_not_yet_enough_and_four_are() -> None:
    before = noisy(1, 20, 100)
    after = [200.0, 205.0, 195.0, 202.0]
    assert change_points(before + after[:3]) == []
    assert [split.index for split in change_points(before + after)] == [20]


@pytest.mark.parametrize("values", [[], [5.0], [5.0] * 30])
def test_little_and_constant_histories_show_nothing(values: list[float]) -> None:
    assert change_points(values) == []


@given(st.lists(st.integers(0, 10**6), min_size=6, max_size=14))
@settings(max_examples=50, deadline=None)
def test_distances_are_those_of_the_definition(values: list[int]) -> None:
    splits, ends = _places(len(values), 2)
    found = _distances(np.asarray([values], dtype=np.float64), splits, ends)[0]
    for split, end, distance in zip(splits, ends, found, strict=True):
        before, after = values[:split], values[split:end]
        n, m = len(before), len(after)
        apart = abs(sum(before) / n - sum(after) / m)
        assert distance == pytest.approx(apart * (n * m / (n + m)) ** 0.5, abs=1e-3)


def test_the_order_of_pairs_counts_equals_half() -> None:
    assert order(np.array([1.0, 2.0]), np.array([2.0, 3.0])) == 0.875  # 3 rise, 1 equal of 4
    assert order(np.array([3.0]), np.array([1.0])) == 1.0


def steady(seed: int, runs: int, deviation: float = 0.03, alike: float = 0.0) -> list[float]:
    """Means of runs around 5 ms with this deviation; alike: autocorrelation of consecutive runs."""
    random = np.random.default_rng(seed)
    found, last = [], 0.0
    for _ in range(runs):
        last = alike * last + np.sqrt(1 - alike**2) * random.normal()
        found.append(float(5 * np.exp(deviation * last)))
    return found


MEANS = ChangePointConfig(least_step=0.1)


def test_a_tenth_is_found_where_runs_differ_by_three_percent() -> None:
    for seed in range(10):
        values = steady(seed, 24)
        values[14:] = [1.1 * value for value in values[14:]]
        found = [split.index for split in change_points(values, MEANS)]
        assert len(found) == 1, seed
        assert abs(found[0] - 14) <= 2, seed


def test_one_value_far_out_does_not_hide_a_tenth() -> None:
    values = steady(3, 24)
    values[14:] = [1.1 * value for value in values[14:]]
    values[5] *= 10
    assert [split.index for split in change_points(values, MEANS)] == [14]


def test_how_alike_neighbours_are_is_found_in_spite_of_the_levels() -> None:
    values = np.array(steady(3, 400, alike=0.6))
    values[200:] *= 1.1
    assert likeness(np.log1p(values), [Split(200, 0.001)]).share == pytest.approx(0.6, abs=0.1)
    assert likeness(np.log1p(values), []).share > 0.8
    assert likeness(np.log1p(np.array(steady(2, 400))), []).share == pytest.approx(0, abs=0.1)
    assert likeness(np.full(9, 5.0), []).share == pytest.approx(1 / 6)  # 9 values of one level


def test_a_value_far_from_its_neighbours_is_drawn_near_and_a_level_is_left() -> None:
    values = np.expm1(np.array([1.0, 1.2] * 10 + [2.0, 2.2] * 2))
    values[7] = np.expm1(5.0)
    found = clipped(values)
    assert found[7] < 1.8
    assert found[20:].tolist() == pytest.approx([2.0, 2.2, 2.0, 2.2])


@pytest.mark.parametrize(
    ("deviation", "alike", "before", "after"),
    [(0.02, 0.0, 20, 6), (0.03, 0.0, 20, 10), (0.04, 0.0, 20, 20), (0.03, 0.3, 20, 20)],
)
def test_a_tenth_is_found_in_95_of_100(
    deviation: float, alike: float, before: int, after: int
) -> None:
    found = 0
    for seed in range(100):
        values = steady(seed, before + after, deviation, alike)
        values[before:] = [1.1 * value for value in values[before:]]
        found += any(abs(one.index - before) <= 5 for one in change_points(values, MEANS))
    assert found >= 95


@pytest.mark.parametrize(("deviation", "alike"), [(0.03, 0.0), (0.06, 0.0), (0.04, 0.5)])
def test_histories_without_a_change_show_one_in_at_most_5_of_100(
    deviation: float, alike: float
) -> None:
    found = [
        seed for seed in range(100) if change_points(steady(seed, 40, deviation, alike), MEANS)
    ]
    assert len(found) <= 5
