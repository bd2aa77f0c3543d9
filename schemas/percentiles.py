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
    """The same with minimum and mean, of a histogram that is not empty."""
    total = sum(value * count for value, count in counts.items())
    return {"min": min(counts), **levels(counts), "mean": total / counts.total()}
