"""Removes the effect of the time of day from a figure: a machine may be busier each evening.
Pure."""

import math
import statistics
from collections.abc import Sequence
from itertools import groupby

from analysis.changes.series import Point

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
SEASON_HOURS = 4
LEAST_DAYS, LEAST_RUNS = 3, 5  # minimum days and runs of a time of day to be adjusted


def without_season(points: Sequence[Point]) -> list[float]:
    """The values adjusted to an average time of day; unchanged at times of day with too little
    data.

    The effect of a time of day is the median ratio of its runs to the median of their day, so a
    lasting change is not removed. A day is adjusted only if that makes its runs more alike: a first
    weekend may not have the busy hours of the days before it.
    """
    given = [point.value for point in points]
    if min(given, default=0) <= 0:
        return given
    values = list(given)
    by_day = _grouped([point.at_ms // DAY_MS for point in points])
    days = {day: statistics.median(values[n] for n in numbers) for day, numbers in by_day.items()}
    times = _grouped([point.at_ms % DAY_MS // (SEASON_HOURS * HOUR_MS) for point in points])
    for numbers in times.values():
        seen = {points[n].at_ms // DAY_MS for n in numbers}
        if len(seen) < LEAST_DAYS or len(numbers) < LEAST_RUNS:
            continue
        usual = [values[n] / days[points[n].at_ms // DAY_MS] for n in numbers]
        factor = statistics.median(usual)
        for n in numbers:
            values[n] /= factor
    for numbers in by_day.values():
        if _spread([values[n] for n in numbers]) > _spread([given[n] for n in numbers]):
            for n in numbers:
                values[n] = given[n]
    return values


def _spread(values: Sequence[float]) -> float:
    """Mean absolute deviation of the logarithms from their median."""
    logs = [math.log(value) for value in values]
    middle = statistics.median(logs)
    return statistics.fmean(abs(each - middle) for each in logs)


def _grouped(keys: Sequence[int]) -> dict[int, list[int]]:
    """Indexes by key."""
    order = sorted(range(len(keys)), key=lambda n: keys[n])
    return {key: list(found) for key, found in groupby(order, key=lambda n: keys[n])}
