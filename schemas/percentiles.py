"""The only definition of percentiles: nearest rank over exact counts.

ClickHouse's `quantileExactWeighted` returns the same values, so SQL and reports agree exactly.
"""

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Final

MOST_PARTS: Final = 16
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


class PackedCounts:
    """A histogram that is added to often and read seldom, as arrays: a fifth of the memory of a
    Counter, and no small objects that leave the heap of a process fragmented.

    >>> packed = PackedCounts()
    >>> packed.add([7, 9], [1, 2])
    >>> packed.add([9], [1])
    >>> packed.counts()
    Counter({9: 3, 7: 1})
    """

    def __init__(self) -> None:
        self._parts: list[tuple[array[int], array[int]]] = []

    def add(self, values: Sequence[int], counts: Sequence[int]) -> None:
        """Add the count of each value."""
        self._parts.append((array("q", values), array("q", counts)))
        if len(self._parts) > MOST_PARTS:
            whole = self.counts()
            self._parts = [(array("q", whole.keys()), array("q", whole.values()))]

    def counts(self) -> Counter[int]:
        """The counts by value."""
        result: Counter[int] = Counter()
        for values, counts in self._parts:
            for value, count in zip(values, counts, strict=True):
                result[value] += count
        return result


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
    seen, result = 0.0, 0.0
    for value, count in sorted(counts.items()):
        result += value * max(0.0, min(seen + count, end) - max(seen, begin))
        seen += count
    return result / (end - begin)
