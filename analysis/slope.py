"""Slope of a series with its uncertainty: Theil–Sen estimator with Sen's interval. Pure.

The slope is the median of the slopes between all pairs of points, which is robust to a single
pause. Its interval lies between two of these slopes, by Kendall's statistic (P. K. Sen, 1968).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import median

Z_95 = 1.96
THIRD = 3


@dataclass(frozen=True)
class Slope:
    """Units of the values per second; low to high at 95 %. 0 for fewer than two points."""

    value: float = 0.0
    low: float = 0.0
    high: float = 0.0


def slope(values: Mapping[int, float]) -> Slope:
    """The slope of values by second."""
    pairs = combinations(sorted(values.items()), 2)
    slopes = sorted((late - early) / (then - now) for (now, early), (then, late) in pairs)
    if not slopes:
        return Slope()
    count, pair_count = len(values), len(slopes)
    spread = Z_95 * sqrt(spread_of_pairs(count))
    low = max(0, round((pair_count - spread) / 2) - 1)
    high = min(pair_count - 1, round((pair_count + spread) / 2))
    return Slope(median(slopes), slopes[low], slopes[high])


def spread_of_pairs(count: int) -> float:
    """Variance of Kendall's statistic for `count` values without ties."""
    return count * (count - 1) * (2 * count + 5) / 18


def risen(values: Mapping[int, float]) -> tuple[float, float]:
    """The median of the first third of the seconds, and the increase to that of the last third."""
    ordered = [values[second] for second in sorted(values)]
    part = max(1, len(ordered) // THIRD)
    first = median(ordered[:part])
    return first, median(ordered[-part:]) - first
