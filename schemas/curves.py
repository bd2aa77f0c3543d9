"""Rates over time that integrate exactly: the number of records of a load due by time t. Pure.

A curve is a sequence of pieces. Its integral is an integer in billionths of a record
("nano-records"), so counts depend neither on the length of a load nor on how it is divided:

    >>> curve = Curve((Ramp(1_000_000, 0, 2_000_000),), hold=2_000_000)  # 0 to 2 000/s in 1 s
    >>> curve.integral(500_000), curve.integral(1_000_000), curve.integral(2_000_000)
    (250000000000, 1000000000000, 3000000000000)
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import pi, sin
from typing import Protocol

NANO = 1_000_000_000
SECOND_US = 1_000_000
WAVE_PIECES = 360


class Integral(Protocol):
    """Nano-records due before `elapsed_us`; an integer that never decreases."""

    def integral(self, elapsed_us: int) -> int:
        """See above. 0 at 0."""


@dataclass(frozen=True)
class Ramp:
    """From rate `start` to rate `end` in `duration_us`. Rates are in thousandths of a record per
    second, so rate times microseconds is nano-records. The rate is constant if start = end."""

    duration_us: int
    start: int
    end: int

    def integral(self, elapsed_us: int) -> int:
        grown = (self.end - self.start) * elapsed_us * elapsed_us // (2 * self.duration_us)
        return self.start * elapsed_us + grown


@dataclass(frozen=True)
class Burst:
    """`records` records, evenly distributed over `duration_us`."""

    duration_us: int
    records: int

    def integral(self, elapsed_us: int) -> int:
        return self.records * NANO * elapsed_us // self.duration_us


class Curve:
    """Consecutive pieces; then from the beginning again (`repeats`) or at the rate `hold`."""

    def __init__(self, pieces: Sequence[Ramp | Burst], hold: int = 0, repeats: bool = False):
        self._pieces = tuple(pieces)
        self._starts_us = list(accumulate((p.duration_us for p in pieces), initial=0))
        self._before = list(
            accumulate((p.integral(p.duration_us) for p in pieces), initial=0),
        )
        self._hold = hold
        self._repeats = repeats

    def integral(self, elapsed_us: int) -> int:
        if elapsed_us <= 0:
            return 0
        end_us, whole = self._starts_us[-1], self._before[-1]
        if self._repeats:
            rounds, elapsed_us = divmod(elapsed_us, end_us)
            return rounds * whole + self._within(elapsed_us)
        if elapsed_us >= end_us:
            return whole + self._hold * (elapsed_us - end_us)
        return self._within(elapsed_us)

    def _within(self, elapsed_us: int) -> int:
        piece = bisect_right(self._starts_us, elapsed_us) - 1
        if piece == len(self._pieces):
            return self._before[-1]
        inside_us = elapsed_us - self._starts_us[piece]
        return self._before[piece] + self._pieces[piece].integral(inside_us)


class Sum:
    """The sum of several curves."""

    def __init__(self, parts: Sequence[Integral]) -> None:
        self._parts = tuple(parts)

    def integral(self, elapsed_us: int) -> int:
        return sum(part.integral(elapsed_us) for part in self._parts)


class Chain:
    """Consecutive parts, each evaluated from its own start for its duration; None: without end."""

    def __init__(self, parts: Sequence[tuple[Integral, int | None]]) -> None:
        self._parts = tuple(parts)

    def integral(self, elapsed_us: int) -> int:
        total = 0
        for part, duration_us in self._parts:
            if elapsed_us <= 0:
                break
            inside_us = elapsed_us if duration_us is None else min(elapsed_us, duration_us)
            total += part.integral(inside_us)
            elapsed_us -= inside_us
        return total


def constant(rate: int) -> Curve:
    """The same rate for ever, in thousandths of a record per second."""
    return Curve((), hold=rate)


def limited(curve: Integral, for_s: float) -> Integral:
    """A curve until a time; 0: without end."""
    return Chain(((curve, microseconds(for_s)),)) if for_s else curve


def wave(period_s: float, mean: int, height: int) -> tuple[Ramp, ...]:
    """A sine wave approximated by ramps between integer rates, so that it integrates exactly. The
    corners lie on the sine, and a full wave has the mean rate."""
    cuts_us = [microseconds(period_s) * step // WAVE_PIECES for step in range(WAVE_PIECES + 1)]
    quarter = [round(height * sin(2 * pi * step / WAVE_PIECES)) for step in range(91)]
    half = quarter + quarter[-2::-1]
    rates = [mean + swing for swing in half] + [mean - swing for swing in half[1:]]
    return tuple(
        Ramp(end_us - start_us, rates[step], rates[step + 1])
        for step, (start_us, end_us) in enumerate(pairwise(cuts_us))
        if end_us > start_us
    )


def microseconds(seconds: float) -> int:
    """A duration in microseconds, at least one."""
    return max(1, round(seconds * SECOND_US))


def thousandths(rate_per_second: float) -> int:
    """A rate in thousandths of a record per second."""
    return round(rate_per_second * 1000)
