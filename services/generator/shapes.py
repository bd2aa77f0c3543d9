"""Load shapes: when each record is due, as pure functions of elapsed time and record number.

Record k (from 0) is scheduled at `scheduled_us(k)` microseconds after the load's start, rounded
down. `due(t)` is the number of records scheduled at or before t, so `due(scheduled_us(k)) > k` and
`due(scheduled_us(k) - 1) <= k`. Both use exact integer arithmetic: every record falls into exactly
one tick, however a load is divided into ticks.

    >>> shape = ConstantShape(rate_per_second=400)
    >>> shape.due(-1), shape.due(0), shape.due(2_499), shape.due(2_500)
    (0, 1, 1, 2)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.curves import NANO, SECOND_US, Integral
from schemas.load import Shape

Int64s = NDArray[np.int64]

CELL_US = 1_000
MAX_CELLS = 5_000  # evaluated together; larger ranges are bisected
NEVER_CELL = 2 * 366 * 86_400_000  # two years: longer than any load
SLICE_RECORDS = 25_000
RATE_RESOLUTION = 1000  # rates are multiples of 1/1000 record per second


class LoadShape(Protocol):
    """The schedule of records. `scheduled_us` must not decrease; `due` is its inverse."""

    def due(self, elapsed_us: int) -> int:
        """Number of records scheduled at or before `elapsed_us`; 0 before the start."""

    def scheduled_us(self, indexes: Int64s) -> Int64s:
        """Microseconds after the start at which each of the given records is due; same length."""


class ConstantShape:
    """A constant rate: record k is due k / rate seconds after the start.

    The rate is rounded to 1/1000 record per second, which keeps the arithmetic within 64 bits for a
    year at the highest rate. Raises ValueError for lower rates.
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
        if elapsed_us < 0:
            return 0
        # floor(k·P/R) <= t  ⇔  k·P < (t + 1)·R; the count of such k is a ceiling.
        return -(-(elapsed_us + 1) * self._records // self._period_us)

    def scheduled_us(self, indexes: Int64s) -> Int64s:
        periods, rest = np.divmod(indexes, self._records)
        # rest · period is below 10^19: it exceeds a signed 64-bit integer and fits an unsigned one.
        within = rest.astype(np.uint64) * np.uint64(self._period_us) // np.uint64(self._records)
        return np.asarray(periods * self._period_us + within.astype(np.int64), dtype=np.int64)


class GridShape:
    """A shape defined by an integral: counts are exact at every millisecond, and records are evenly
    spaced within a millisecond.

    Record k is due in the millisecond in which the integral passes k. The number of records before
    a millisecond is the integral there, rounded up, as for a constant rate.
    """

    def __init__(self, curve: Integral) -> None:
        self._curve = curve

    def due(self, elapsed_us: int) -> int:
        if elapsed_us < 0:
            return 0
        cell, inside_us = divmod(elapsed_us, CELL_US)
        before = self._before(cell)
        records = self._before(cell + 1) - before
        # floor(i·W/n) <= t  ⇔  i·W < (t + 1)·n; the count of such i is a ceiling.
        return before + -(-(inside_us + 1) * records // CELL_US)

    def scheduled_us(self, indexes: Int64s) -> Int64s:
        """See LoadShape. A record beyond the end of the shape is due in two years."""
        if not len(indexes):
            return np.zeros(0, np.int64)
        low = self._cell_of(int(indexes.min()))
        high = self._cell_of(int(indexes.max()))
        if high - low > MAX_CELLS:
            return self._one_by_one(indexes)
        before = np.array([self._before(cell) for cell in range(low, high + 2)], np.int64)
        place = np.searchsorted(before, indexes, side="right") - 1
        place = np.minimum(place, len(before) - 2)
        records = np.maximum(before[place + 1] - before[place], 1)
        inside_us = np.minimum((indexes - before[place]) * CELL_US // records, CELL_US - 1)
        return np.asarray((low + place) * CELL_US + inside_us, dtype=np.int64)

    def _one_by_one(self, indexes: Int64s) -> Int64s:
        middle = len(indexes) // 2
        halves = (indexes[:middle], indexes[middle:])
        return np.concatenate([self.scheduled_us(half) for half in halves])

    def _before(self, cell: int) -> int:
        return -(-self._curve.integral(cell * CELL_US) // NANO)

    def _cell_of(self, index: int) -> int:
        """The last cell with at most `index` records before it, found by bisection."""
        low, high = 0, 1024
        while high < NEVER_CELL and self._before(high) <= index:
            low, high = high, high * 2
        high = min(high, NEVER_CELL)
        while high - low > 1:
            middle = (low + high) // 2
            if self._before(middle) <= index:
                low = middle
            else:
                high = middle
        return low


class ReplayShape:
    """Records at recorded times, repeated: `per_time` records at each of `times_us` (ascending,
    from 0), and again after `period_us`, which must exceed the last time."""

    def __init__(self, times_us: Int64s, period_us: int, per_time: int) -> None:
        if not len(times_us) or period_us <= int(times_us[-1]):
            raise ValueError("a replay needs recorded times and a period after the last one")
        self._times_us = times_us
        self._period_us = period_us
        self._per_time = per_time

    def due(self, elapsed_us: int) -> int:
        if elapsed_us < 0:
            return 0
        rounds, inside_us = divmod(elapsed_us, self._period_us)
        times = rounds * len(self._times_us)
        return self._per_time * (
            times + int(np.searchsorted(self._times_us, inside_us, side="right"))
        )

    def scheduled_us(self, indexes: Int64s) -> Int64s:
        rounds, place = np.divmod(indexes // self._per_time, len(self._times_us))
        return np.asarray(rounds * self._period_us + self._times_us[place], dtype=np.int64)


def shape_of(load: Shape) -> LoadShape:
    """The schedule of a load. Raises ValueError for a replay, whose times come from its data."""
    rate = load.constant_per_second
    return GridShape(load.curve()) if rate is None else ConstantShape(rate)


@dataclass(frozen=True)
class Slice:
    """Adjacent records of one second, prepared together; the slices of a load cover its whole time.

    second: from the load's start. first: number of its first record in the load; records: their
    count. end_us: elapsed time at which the next slice begins. event_second: the second of event
    time that all its records belong to; event_first, event_records: first record and count of that
    second.
    """

    second: int
    first: int
    records: int
    end_us: int
    event_second: int
    event_first: int
    event_records: int

    @property
    def end(self) -> int:
        """Number of the record after its last."""
        return self.first + self.records


def slices(
    shape: LoadShape,
    seconds: int,
    event_second_us: int = SECOND_US,
    limit: int = SLICE_RECORDS,
) -> Iterator[Slice]:
    """Divide a load of `seconds` seconds into slices of at most `limit` records, in order.

    A slice never crosses the boundary of a second or of a second of event time.
    """
    end_us = seconds * SECOND_US
    start_us, first = 0, 0
    while start_us < end_us:
        second, event_second = start_us // SECOND_US, start_us // event_second_us
        event_end_us = (event_second + 1) * event_second_us
        cut_us = min((second + 1) * SECOND_US, event_end_us, end_us)
        event_first = shape.due(event_second * event_second_us - 1)
        event_records = shape.due(event_end_us - 1) - event_first
        end = shape.due(cut_us - 1)
        while True:
            records = min(limit, end - first)
            last = first + records == end
            until_us = cut_us if last else _due_us(shape, first + records)
            yield Slice(second, first, records, until_us, event_second, event_first, event_records)
            first += records
            if last:
                break
        start_us = cut_us


def _due_us(shape: LoadShape, index: int) -> int:
    return int(shape.scheduled_us(np.array([index]))[0])
