"""The only definition of percentiles, nearest rank over exact counts, and the only list of them.

ClickHouse's `quantileExactWeighted` returns the same values, so SQL and reports agree exactly.

A percentile in LEVELS and a field of `schemas.report.Latency` is one more figure everywhere: in the
views (`services/store/engines/schema.py` repeats their lines for each), in reports, thresholds,
studies, medians of repeated runs, and tables of the dashboards.
"""

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

MOST_PARTS: Final = 16
LEVELS: Final = {
    "p5": 0.05,
    "p25": 0.25,
    "p50": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "p95": 0.95,
    "p99": 0.99,
    "p999": 0.999,
    "p99999": 0.99999,
}
RANKED: Final = ("min", *LEVELS, "max")
LATENCIES: Final = (*RANKED, "mean", "middle")  # every figure of a latency, milliseconds


def quantile(counts: Counter[int], level: float) -> int | None:
    """The smallest value with at least `level` (0 to 1) of all counts at or below it.

    Counts must not be negative. None for an empty histogram.

    >>> quantile(Counter({1: 50, 2: 49, 9: 1}), 0.99)
    2
    """
    return _quantiles(counts, (level,))[0]


def _quantiles(counts: Counter[int], levels: Iterable[float]) -> list[int | None]:
    values = sorted(value for value, count in counts.items() if count)
    seen = list(accumulate(counts[value] for value in values))
    if not values:
        return [None for _ in levels]
    return [values[bisect_left(seen, math.ceil(level * seen[-1]))] for level in levels]


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


def shown(name: str) -> str:
    """The name of a percentile for people: `p99.9` of p999. Other names are returned unchanged."""
    return f"p{100 * LEVELS[name]:g}" if name in LEVELS else name


def ranked(counts: Counter[int]) -> dict[str, int | None]:
    """The RANKED figures of a histogram by name."""
    values = _quantiles(counts, (0.0, *LEVELS.values(), 1.0))
    return dict(zip(RANKED, values, strict=True))


def summary(counts: Counter[int]) -> dict[str, float | None]:
    """The LATENCIES of a histogram that is not empty."""
    total = sum(value * count for value, count in counts.items())
    return {**ranked(counts), "mean": total / counts.total(), "middle": middle(counts)}


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
