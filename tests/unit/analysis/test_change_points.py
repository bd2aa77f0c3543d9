"""Change points: found where they are, and nowhere else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.change_points import (
    ChangePointConfig,
    _distances,
    _places,
    block_length,
    change_points,
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
    data = np.asarray(values, dtype=np.float64)
    splits, ends = _places(len(values), 2)
    found = _distances(np.abs(data[:, None] - data[None, :]), splits, ends)
    for place, end, distance in zip(splits, ends, found, strict=True):
        left, right = values[:place], values[place:end]
        n, m = len(left), len(right)
        across = sum(abs(a - b) for a in left for b in right) / (n * m)
        first = sum(abs(a - b) for a in left for b in left) / (n * (n - 1))
        second = sum(abs(a - b) for a in right for b in right) / (m * (m - 1))
        wanted = n * m / (n + m) * (2 * across - first - second)
        assert distance == pytest.approx(wanted, abs=1e-3)


def test_the_order_of_pairs_counts_equals_half() -> None:
    assert order(np.array([1.0, 2.0]), np.array([2.0, 3.0])) == 0.875  # 3 rise, 1 equal of 4
    assert order(np.array([3.0]), np.array([1.0])) == 1.0


def steady(seed: int, runs: int, deviation: float = 0.03, alike: float = 0.0) -> list[float]:
    """Means of runs around 5 ms that differ by so much; alike: how far each is like the last."""
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


def test_runs_that_are_like_the_one_before_are_seldom_a_change() -> None:
    found = [seed for seed in range(20) if change_points(steady(seed, 40, 0.04, 0.5), MEANS)]
    assert len(found) <= 1


def test_one_value_far_out_does_not_hide_a_tenth() -> None:
    values = steady(3, 24)
    values[14:] = [1.1 * value for value in values[14:]]
    values[5] *= 10
    assert [split.index for split in change_points(values, MEANS)] == [14]


def test_blocks_are_as_long_as_neighbours_are_alike() -> None:
    assert block_length(np.array(steady(1, 100)), []) == 1
    assert block_length(np.array(steady(1, 100, alike=0.7)), []) == 6
    assert block_length(np.array([5.0] * 9), []) == 1
    assert block_length(np.array([5.0]), []) == 1
