"""The only definition of percentiles: nearest rank over exact counts.

ClickHouse's `quantileExactWeighted` returns the same values, so SQL and reports agree exactly.
"""

import math
from collections import Counter
from typing import Final

LEVELS: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}


def quantile(counts: Counter[int], level: float) -> int | None:
    """The smallest value with at least `level` (0 to 1) of all counts at or below it.

    Counts must not be negative. None for an empty histogram.

    >>> quantile(Counter({1: 50, 2: 49, 9: 1}), 0.99)
    2
    """
    rank = math.ceil(level * counts.total())
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if counts[value] and seen >= rank:
            return value
    return None


def levels(counts: Counter[int]) -> dict[str, int | None]:
    """The percentiles of a report by name."""
    return {name: quantile(counts, level) for name, level in LEVELS.items()}


def summary(counts: Counter[int]) -> dict[str, float | None]:
    """The same with minimum, mean and `middle`, of a histogram that is not empty."""
    total = sum(value * count for value, count in counts.items())
    means = {"mean": total / counts.total(), "middle": middle(counts)}
    return {"min": min(counts), **levels(counts), **means}


def middle(counts: Counter[int]) -> float:
    """The mean of the middle half of a histogram that is not empty: like the median, but finer than
    whole milliseconds, because the rounding of timestamps cancels in a mean.

    >>> middle(Counter({1: 5, 2: 4, 3: 6, 90: 5}))
    2.6
    """
    begin, end = 0.25 * counts.total(), 0.75 * counts.total()
    seen, found = 0.0, 0.0
    for value, count in sorted(counts.items()):
        found += value * max(0.0, min(seen + count, end) - max(seen, begin))
        seen += count
    return found / (end - begin)
