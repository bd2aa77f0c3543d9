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
MOST_POINTS = 600  # 180,000 pairs
THIRD = 3


@dataclass(frozen=True)
class Slope:
    """Units of the values per second; low to high at 95 %. 0 for fewer than two points."""

    value: float = 0.0
    low: float = 0.0
    high: float = 0.0


def slope(values: Mapping[int, float]) -> Slope:
    """The slope of values by second; of more than MOST_POINTS, that of their medians."""
    points = reduced(values)
    pairs = combinations(sorted(points.items()), 2)
    slopes = sorted((late - early) / (then - now) for (now, early), (then, late) in pairs)
    if not slopes:
        return Slope()
    count, pair_count = len(points), len(slopes)
    spread = Z_95 * sqrt(spread_of_pairs(count))
    low = max(0, round((pair_count - spread) / 2) - 1)
    high = min(pair_count - 1, round((pair_count + spread) / 2))
    return Slope(median(slopes), slopes[low], slopes[high])


def reduced(values: Mapping[int, float]) -> dict[int, float]:
    """At most MOST_POINTS medians of neighbouring seconds, each at the middle one."""
    ordered, size = sorted(values.items()), max(1, -(-len(values) // MOST_POINTS))
    stretches = (ordered[at : at + size] for at in range(0, len(ordered), size))
    return {one[len(one) // 2][0]: median(value for _, value in one) for one in stretches}


def spread_of_pairs(count: int) -> float:
    """Variance of Kendall's statistic for `count` values without ties."""
    return count * (count - 1) * (2 * count + 5) / 18


def risen(values: Mapping[int, float]) -> tuple[float, float]:
    """The median of the first third of the seconds, and the increase to that of the last third."""
    ordered = [values[second] for second in sorted(values)]
    part = max(1, len(ordered) // THIRD)
    first = median(ordered[:part])
    return first, median(ordered[-part:]) - first
