"""Axes of the page's charts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.console.report.charts import linear, logarithmic, round_ticks, spread

pytestmark = pytest.mark.unit


def test_an_even_axis_lays_values_out_in_proportion() -> None:
    axis = linear(0, 60, 40, 340)
    assert (axis(0), axis(15), axis(60)) == (40, 115, 340)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 45, (0, 10, 20, 30, 40)),
        (0, 1, (0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        (0, 420, (0, 100, 200, 300, 400)),
        (-7, 12, (-5, 0, 5, 10)),
    ],
)
def test_ticks_are_round_numbers_within_the_range(
    low: float, high: float, ticks: tuple[float, ...]
) -> None:
    assert round_ticks(low, high) == pytest.approx(ticks)


def test_a_logarithmic_axis_has_a_place_for_zero_and_for_less() -> None:
    axis = logarithmic(-9, 99, 0, 300)  # log10(1 + 9) = 1 below zero, log10(1 + 99) = 2 above
    assert (axis(-9), axis(0), axis(9), axis(99)) == pytest.approx((0, 100, 200, 300))


def test_an_axis_of_one_value_only_is_widened_not_divided_by_zero() -> None:
    assert linear(0, 0, 0, 100)(0) == 0
    assert logarithmic(0, 0, 0, 100)(1) == 100


@given(st.floats(-1e3, 1e6, allow_nan=False), st.floats(1e-3, 1e9, allow_nan=False), st.booleans())
def test_there_are_few_ticks_and_all_lie_on_the_axis(low: float, more: float, log: bool) -> None:
    axis = (logarithmic if log else linear)(low, low + more, 0, 300)
    assert len(axis.ticks) <= 13
    assert all(-0.01 <= axis(tick) <= 300.01 for tick in axis.ticks)


def test_labels_are_moved_apart_in_their_order_and_kept_above_the_end() -> None:
    assert spread([10, 12, 50], 13, 200) == [10, 23, 50]
    assert spread([200, 198, 199], 13, 200) == [200, 174, 187]
