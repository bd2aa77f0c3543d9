"""Removes the effects of the time of day and of the day of the week from a figure: a machine may be
busier each evening, and at weekends there is less traffic. Pure.

From two weeks on, every two hours of the week have a factor: the median ratio of their runs to the
median of the week around them. The newest week does not count for it, so that a change is not taken
for a season before it has lasted a week.

Before, only a weekend is known: two days in a row from Thursday to Sunday, in any time zone, that
differ from the same times of day both before and after them, in one direction. The smaller of the
two differences is removed, so that a change that lasts is not.
"""

import math
import statistics
from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from analysis.changes.series import Point

HOUR_MS = 3_600_000
DAY_H, WEEK_H = 24, 168
MONDAY_H = 96  # the first Monday of the epoch, 1970-01-05
BUCKET_H, TIME_OF_DAY_H = 2, 4
LEAST_WEEKS, LEAST_RUNS = 2, 2  # of two hours of the week, without the newest week
WEEKEND_H = 48
# A weekend begins between Thursday and Saturday at midnight, up to twelve hours from UTC.
BEGINS_H = range(3 * DAY_H - 12, 5 * DAY_H + 13)
LEAST_EFFECT = 0.03

Floats: TypeAlias = NDArray[np.float64]
Hours: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
DAY_MS = 86_400_000
SEASON_HOURS = 4
LEAST_DAYS, LEAST_RUNS_OF_DAYS = 3, 5  # minimum days and runs of a time of day to be adjusted


def without_week(points: Sequence[Point]) -> tuple[list[float], bool]:
    """The values adjusted to an average day, and whether all hours of the week are known, so that
    no effect of the time of day is left."""
    values = [point.value for point in points]
    if min(values, default=0) <= 0:
        return values, False
    logs = np.log(np.asarray(values))
    hours = np.asarray([point.at_ms // HOUR_MS - MONDAY_H for point in points], dtype=np.int64)
    effects = _by_hour_of_week(hours, logs)
    is_known = effects is not None
    if effects is None:
        effects = _of_weekend(hours, logs)
    adjusted = np.asarray(values) * np.exp(-effects)  # exact where there is no effect
    return [float(value) for value in adjusted], is_known


def _by_hour_of_week(hours: Hours, logs: Floats) -> Floats | None:
    """The effect on each run; None if less than two weeks are known, or too few runs."""
    if hours[-1] - hours[0] < LEAST_WEEKS * WEEK_H - DAY_H // 4:
        return None
    apart = logs - _levels(hours, logs)
    buckets = hours % WEEK_H // BUCKET_H
    older = hours <= hours[-1] - WEEK_H
    effects = np.zeros_like(logs)
    counts = []
    for bucket in np.unique(buckets):
        own = buckets == bucket
        known = own & older if (own & older).any() else own
        counts.append(int((own & older).sum()))
        effects[own] = np.median(apart[known])
    return effects if np.median(counts) >= LEAST_RUNS else None


def _levels(hours: Hours, logs: Floats) -> Floats:
    """The median of the week around each run, which contains every hour of the week once. At the
    ends of the history it is the first and the last week."""
    half = WEEK_H // 2
    middle = np.clip(hours, hours[0] + half, hours[-1] - half)
    begins = np.searchsorted(hours, middle - half, side="left")
    ends = np.searchsorted(hours, middle + half, side="right")
    return np.asarray([np.median(logs[a:b]) for a, b in zip(begins, ends, strict=True)])


def _of_weekend(hours: Hours, logs: Floats) -> Floats:
    """The effect of the weekend that explains most of the differences; 0 on other days."""
    best, most = np.zeros_like(logs), 0.0
    for begin_h in BEGINS_H:
        effects, explained = _of_days(hours, logs, begin_h)
        if explained > most:
            best, most = effects, explained
    return best


def _of_days(hours: Hours, logs: Floats, begin_h: int) -> tuple[Floats, float]:
    """The effect of two days from an hour of the week on, and how much of the squared deviations it
    explains. That of the first weekend with days on both sides holds for all."""
    phase, week = (hours - begin_h) % WEEK_H, (hours - begin_h) // WEEK_H
    inside, times = phase < WEEKEND_H, hours % DAY_H // TIME_OF_DAY_H
    effects = np.zeros_like(logs)
    for number in np.unique(week[inside]):
        own = inside & (week == number)
        before = (week == number - 1) & (phase >= WEEK_H - WEEKEND_H)
        after = (week == number) & ~inside & (phase < 2 * WEEKEND_H)
        if not (before.any() and after.any()):
            continue
        by_time, explained = _against_sides(times, logs, own, before, after)
        for time, effect in by_time.items():
            effects[inside & (times == time)] = effect
        return effects, explained
    return effects, 0.0


def _against_sides(
    times: Hours, logs: Floats, own: Bools, *sides: Bools
) -> tuple[dict[int, float], float]:
    """The effect by time of day: the smaller of the differences from both sides, none if these are
    in different directions."""

    def level(side: Bools, time: int) -> float:
        at_time = side & (times == time)
        return float(np.median(logs[at_time if at_time.any() else side]))

    by_time, explained = {}, 0.0
    for time in np.unique(times[own]):
        here = own & (times == time)
        levels = [level(side, time) for side in sides]
        apart = [float(np.median(logs[here])) - level for level in levels]
        effect = min(apart, key=abs) if len({each > 0 for each in apart}) == 1 else 0.0
        if abs(effect) < LEAST_EFFECT:
            continue
        by_time[int(time)] = effect
        rest = logs[here] - np.mean(levels)
        explained += float((2 * rest * effect - effect**2).sum())
    return by_time, explained


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
        if len(seen) < LEAST_DAYS or len(numbers) < LEAST_RUNS_OF_DAYS:
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
    return {key: list(each) for key, each in groupby(order, key=lambda n: keys[n])}
