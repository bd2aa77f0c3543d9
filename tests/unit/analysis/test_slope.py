"""Slopes with their intervals, against literal values."""

import random

import pytest

from analysis.steadiness import MOST_POINTS, Slope, reduced, risen, slope

pytestmark = pytest.mark.unit


def test_a_line_has_its_slope_and_no_doubt() -> None:
    assert slope({at: 5.0 + 3 * at for at in range(20)}) == Slope(3, 3, 3)


def test_seconds_without_a_value_change_nothing() -> None:
    assert slope({0: 0.0, 10: 20.0, 30: 60.0}) == Slope(2, 2, 2)


def test_one_pause_moves_neither_slope_nor_interval_far() -> None:
    found = slope(dict.fromkeys(range(30), 5.0) | {29: 4_000.0})
    assert (found.value, found.low, found.high) == (0, 0, 0)


@pytest.mark.parametrize("values", [{}, {7: 3.0}])
def test_fewer_than_two_points_have_no_slope(values: dict[int, float]) -> None:
    assert slope(values) == Slope(0, 0, 0)


def test_hours_are_reduced_to_medians_of_neighbouring_seconds() -> None:
    hours = {at: 5.0 + 3 * at for at in range(4 * 3600)} | {77: 4_000_000.0}
    assert len(reduced(hours)) == MOST_POINTS
    found = slope(hours)
    assert (round(found.value, 3), round(found.low, 3), round(found.high, 3)) == (3, 3, 3)
    assert reduced({3: 1.0, 1: 7.0}) == {1: 7.0, 3: 1.0}


def test_the_interval_holds_the_slope_in_nineteen_of_twenty() -> None:
    chance = random.Random(7)
    held = 0
    for _ in range(400):
        found = slope({at: 2 * at + chance.gauss(0, 50) for at in range(20)})
        held += found.low <= 2 <= found.high
    assert 370 <= held <= 396


def test_by_how_much_the_last_third_is_above_the_first() -> None:
    assert risen({0: 1.0, 1: 2.0, 2: 3.0, 3: 9.0, 4: 9.0, 5: 9.0, 6: 7.0, 7: 8.0, 8: 20.0}) == (
        2,
        6,
    )
