"""Whether a figure is steady: blocks at one level, trends, and noise."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.steadiness import (
    COST,
    LEAST_VALUES,
    P50,
    P95,
    UNKNOWN,
    Movement,
    SteadyVerdict,
    agree,
    chance_of_trend,
    judge,
    share_of_compilers,
    together,
)

pytestmark = pytest.mark.unit


def by_second(values):
    return dict(enumerate(map(float, values)))


def test_the_chance_of_a_trend_is_that_of_mann_and_kendall():
    """Ten rising values: S = 45, variance 125, z = 44 / 11.18. The second series has one pair of
    ties: S = 44 and variance 124."""
    assert chance_of_trend(range(10)) == pytest.approx(math.erfc(44 / math.sqrt(125 * 2)))
    assert chance_of_trend(range(10)) == pytest.approx(8.3e-5, rel=0.01)
    assert chance_of_trend([0, 1, 2, 3, 4, 4, 6, 7, 8, 9]) == pytest.approx(
        math.erfc(43 / math.sqrt(124 * 2))
    )
    assert chance_of_trend([3, 3, 3, 3]) == 1.0
    assert chance_of_trend([1, 2, 2, 1]) == 1.0


@given(st.lists(st.integers(0, 5), min_size=3, max_size=12))
def test_a_trend_is_as_likely_backwards(values):
    assert chance_of_trend(values) == pytest.approx(chance_of_trend(values[::-1]))


@pytest.mark.parametrize(
    ("figure", "one", "other", "differ"),
    [
        (P50, 5.0, 6.5, False),  # timestamps are whole milliseconds
        (P50, 5.0, 7.0, True),
        (P50, 100.0, 110.0, False),
        (P50, 100.0, 111.0, True),
        (P95, 10.0, 15.0, False),
        (P95, 15.5, 10.0, True),
        (P95, 100.0, 126.0, True),
        (COST, 1000.0, 1150.0, False),
        (COST, 1151.0, 1000.0, True),
    ],
)
def test_what_is_a_difference_that_matters(figure, one, other, differ):
    assert figure.differ(one, other) is differ


def test_a_movement_is_told_in_numbers():
    found = Movement(P50, 20.0, 6.0, 12)
    assert found.sentence == "p50 fell by 14 ms in 12 s, from 20 to 6 ms"
    assert found.still("join") == "p50 of join still falls, 20 → 6 ms"
    assert Movement(COST, 1000.0, 2500.0, 20).sentence == (
        "CPU time rose by 1500 in 20 s, from 1000 to 2500 core-seconds per million records"
    )


def test_blocks_agree_at_one_level_and_say_what_moved_where_they_do_not():
    assert (
        agree(by_second([9] * 4 + [8, 7, 8, 7, 7, 8, 6, 7, 7, 7, 8, 6]), 16, 4, P50)
        == SteadyVerdict()
    )
    found = agree(by_second([20] * 4 + [14] * 4 + [10] * 4), 12, 4, P50)
    assert found.moved == Movement(P50, 20.0, 10.0, 8)
    found = agree(by_second([10] * 4 + [14] * 4 + [10] * 4), 12, 4, P50)
    assert found.moved == Movement(P50, 14.0, 10.0, 4)
    assert agree(by_second([9] * 8), 12, 4, P50) == SteadyVerdict(certain=False)


def test_tails_of_blocks_may_differ_but_not_fall():
    assert agree(by_second([40] * 4 + [12] * 4 + [25] * 4), 12, 4, P95) == SteadyVerdict()
    found = agree(by_second([40] * 4 + [25] * 4 + [12] * 4), 12, 4, P95)
    assert found.moved == Movement(P95, 40.0, 12.0, 8)


def test_a_figure_moves_from_the_first_third_to_the_last():
    falling = by_second([20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6])
    assert judge(falling, 0, 15, P50).moved == Movement(P50, 18.0, 8.0, 10)
    assert judge(falling, 0, 15, P50, last_s=2).moved == Movement(P50, 18.0, 6.5, 11.5)


def test_a_small_step_and_noise_do_not_move():
    assert judge(by_second([6] * 15 + [7] * 15), 0, 30, P50) == SteadyVerdict()
    noise = by_second([5, 9] * 5 + [5, 5] * 5 + [9, 5] * 4 + [9, 9])
    assert judge(noise, 0, 30, P50) == SteadyVerdict()
    short = judge(by_second([5, 9, 5, 9, 9, 5, 9, 9, 5]), 0, 9, P50)
    assert short == SteadyVerdict(Movement(P50, 5.0, 9.0, 6), certain=False)


def test_a_short_time_that_leaves_it_open_moved_if_a_longer_one_went_the_same_way():
    perhaps = SteadyVerdict(Movement(P50, 9.0, 5.0, 6), certain=False)
    fell, rose = (
        SteadyVerdict(Movement(P50, 12.0, 5.0, 14)),
        SteadyVerdict(Movement(P50, 5.0, 9.0, 14)),
    )
    assert together(perhaps, fell, rose) == SteadyVerdict(perhaps.moved)
    assert (
        together(perhaps, rose, fell) == together(perhaps, SteadyVerdict(), fell) == SteadyVerdict()
    )
    assert together(perhaps, perhaps, fell) == SteadyVerdict()
    assert together(UNKNOWN, rose, fell) == fell
    assert together(SteadyVerdict(), fell, fell) == SteadyVerdict()
    assert together(rose, fell, UNKNOWN) == rose


def test_too_few_values_tell_nothing():
    points = by_second(range(0, 10 * LEAST_VALUES, 10))
    assert judge(points, 0, LEAST_VALUES, P50).moved is not None
    assert judge(points, 1, LEAST_VALUES, P50) == SteadyVerdict(certain=False)
    assert judge({}, 0, 30, P50) == SteadyVerdict(certain=False)


def test_values_of_a_long_time_are_put_together_before_a_trend_is_looked_for():
    """10,000 values of one second each are reduced to at most MOST_VALUES medians first."""
    points = by_second(20 + (second // 5000) * 3 for second in range(10_000))
    assert judge(points, 0, 10_000, P50).moved == Movement(P50, 20.0, 23.0, pytest.approx(6667, 1))


def test_a_cycle_counts_as_a_whole():
    bursts = [90, 60, 6, 6, 6, 6, 6, 6, 6, 6]
    assert judge(by_second(bursts * 7), 0, 70, P50, cycle_s=10) == SteadyVerdict()


def test_what_compilers_take_is_a_share_of_the_processor_time():
    cpu_s, jit_s = by_second([1.0, 1.0, 0.5]), by_second([0.5, 0.25, 0.05])
    assert share_of_compilers(jit_s, cpu_s, 1, 3) == pytest.approx(0.2)
    assert share_of_compilers({1: 9.0}, cpu_s, 1, 3) == 1.0
    assert share_of_compilers({}, cpu_s, 0, 3) is None
    assert share_of_compilers(jit_s, {}, 0, 3) is None
