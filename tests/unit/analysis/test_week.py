"""Weekends are no change points, and changes at weekends are."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from analysis.changes.finding import find_changes
from analysis.changes.series import Point
from analysis.changes.week import without_week
from tests.unit.analysis.histories import a_point, a_series

pytestmark = pytest.mark.unit

HOUR_MS = 3_600_000
MONDAY_MS = int(datetime(2026, 8, 3, tzinfo=UTC).timestamp() * 1000)
SATURDAY, SUNDAY, FRIDAY = 5, 6, 4


def each_hour(days: int, weekend: tuple[int, ...], level: Callable[[int], float]) -> list[Point]:
    """A run every hour from a Monday on, 40 ms times the level of the hour, and 25 at weekends,
    with 3 % noise."""
    random.seed(7)
    values = (
        (25 if hour // 24 % 7 in weekend else 40) * level(hour) * random.gauss(1, 0.03)
        for hour in range(24 * days)
    )
    return [
        replace(a_point(n, value), at_ms=MONDAY_MS + n * HOUR_MS) for n, value in enumerate(values)
    ]


def changes_of(points: list[Point]) -> list[str]:
    """Where the level changed, as day and hour since the first Monday."""
    found = find_changes([replace(a_series([1.0]), points=tuple(points))])
    hours = [(change.after[0].at_ms - MONDAY_MS) // HOUR_MS for change in found]
    return [f"day {hour // 24} {hour % 24:02}:00" for hour in hours]


def steady(_hour: int) -> float:
    return 1.0


@pytest.mark.parametrize("weekend", [(SATURDAY, SUNDAY), (FRIDAY, SATURDAY)])
def test_a_weekend_is_no_change_once_it_is_over(weekend: tuple[int, int]) -> None:
    points = each_hour(10, weekend, steady)
    assert changes_of(points[: 24 * (weekend[0] + 1)]) == [f"day {weekend[0]} 00:00"]
    assert changes_of(points[: 24 * (weekend[1] + 2)]) == []
    assert changes_of(points) == []


def test_the_busy_hours_of_weekdays_are_not_expected_at_a_first_weekend() -> None:
    def business(hour: int) -> float:
        return 1.0 if hour // 24 % 7 < SATURDAY and hour % 24 in range(8, 18) else 0.7

    points = each_hour(8, (), business)
    assert [changes_of(points[: 24 * days]) for days in (6, 7, 8)] == [[], [], []]


def test_from_two_weeks_on_every_hour_of_the_week_is_known() -> None:
    def batch(hour: int) -> float:
        return 1.5 if hour % 168 in range(8, 14) else 1.0  # each Monday from eight to two

    points = each_hour(22, (SATURDAY, SUNDAY), batch)
    values, is_known = without_week(points)
    assert is_known
    assert max(values) / min(values) < 1.3
    assert changes_of(points) == []


@pytest.mark.parametrize("day", [9, 16, 19], ids=["Wednesday", "the next", "Saturday"])
def test_a_change_that_lasts_is_found_at_its_place(day: int) -> None:
    points = each_hour(day + 2, (SATURDAY, SUNDAY), lambda hour: 1.25 if hour >= 24 * day else 1.0)
    assert changes_of(points) == [f"day {day} 00:00"]


def test_a_change_on_a_saturday_is_no_weekend() -> None:
    points = each_hour(9, (), lambda hour: 1.25 if hour >= 24 * SATURDAY else 1.0)
    assert changes_of(points) == [f"day {SATURDAY} 00:00"]
