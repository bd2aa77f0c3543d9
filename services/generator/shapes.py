"""Load shapes: when each record is due, as pure functions of elapsed time and record number.

Record k (from 0) is scheduled at `scheduled_us(k)` microseconds after the load's start, rounded
down. `due(t)` is the number of records scheduled at or before t, so `due(scheduled_us(k)) > k` and
`due(scheduled_us(k) - 1) <= k`. Both are exact integer arithmetic: however a load is cut into
ticks, every record falls into exactly one.

    >>> shape = ConstantShape(rate_per_second=400)
    >>> shape.due(-1), shape.due(0), shape.due(2_499), shape.due(2_500)
    (0, 1, 1, 2)
"""

from math import gcd
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.protocol import Load

Int64s = NDArray[np.int64]

SECOND_US = 1_000_000
RATE_RESOLUTION = 1000  # rates are multiples of 1/1000 record per second


class LoadShape(Protocol):
    """When records are due. `scheduled_us` must not decrease; `due` is its inverse."""

    def due(self, elapsed_us: int) -> int:
        """Number of records scheduled at or before `elapsed_us`; 0 before the start."""

    def scheduled_us(self, indexes: Int64s) -> Int64s:
        """Microseconds after the start at which records 0, 1, … are due; same length."""


class ConstantShape:
    """A constant rate: record k is due k / rate seconds after the start.

    The rate is taken to the nearest 1/1000 record per second, which keeps the arithmetic within
    64 bits for every record that a year of the highest rate has. Raises ValueError for a rate
    below that.
    """

    def __init__(self, rate_per_second: float) -> None:
        thousandths = round(rate_per_second * RATE_RESOLUTION)
        if thousandths < 1:
            raise ValueError(f"a rate of {rate_per_second} records per second is below 0.001")
        period_us = SECOND_US * RATE_RESOLUTION
        common = gcd(period_us, thousandths)
        # Every `_records` records take exactly `_period_us` microseconds.
        self._period_us = period_us // common
        self._records = thousandths // common

    def due(self, elapsed_us: int) -> int:
        """See LoadShape."""
        if elapsed_us < 0:
            return 0
        # floor(k·P/R) <= t  ⇔  k·P < (t + 1)·R; the count of such k is a ceiling.
        return -(-(elapsed_us + 1) * self._records // self._period_us)

    def scheduled_us(self, indexes: Int64s) -> Int64s:
        """See LoadShape."""
        periods, rest = np.divmod(indexes, self._records)
        # rest · period is below 10^19: more than a signed 64-bit integer holds, less than an
        # unsigned one does.
        within = rest.astype(np.uint64) * np.uint64(self._period_us) // np.uint64(self._records)
        return np.asarray(periods * self._period_us + within.astype(np.int64), dtype=np.int64)


def shape_of(load: Load) -> LoadShape:
    """The shape that a workload asks for."""
    return ConstantShape(load.rate_per_second)


def records_between(shape: LoadShape, start_us: int, end_us: int) -> int:
    """Number of records scheduled from `start_us`, inclusive, to `end_us`, exclusive."""
    return shape.due(end_us - 1) - shape.due(start_us - 1)
