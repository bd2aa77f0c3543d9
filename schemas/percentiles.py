"""The only definition of percentiles: nearest rank over exact counts.

ClickHouse's `quantileExactWeighted` returns the same values, so SQL and reports agree exactly.
"""

import math
from collections import Counter


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
