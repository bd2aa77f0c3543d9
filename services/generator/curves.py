"""Rates over time that integrate exactly: the number of records of a load due by time t. Pure.

A curve is a sequence of pieces. Its integral is an integer in billionths of a record
("nano-records"), so counts depend neither on the length of a load nor on how it is divided:

    >>> curve = Curve((Ramp(1_000_000, 0, 2_000_000),), hold=2_000_000)  # 0 to 2 000/s in 1 s
    >>> curve.integral(500_000), curve.integral(1_000_000), curve.integral(2_000_000)
    (250000000000, 1000000000000, 3000000000000)
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import pi, sin
from typing import Protocol

from schemas.protocol import Load

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


def curve_of(load: Load) -> Integral:
    """The curve of a load of any shape except replay."""
    if load.shape == "sequence":
        return Chain([(_endless(part), _duration_us(part.for_s)) for part in load.parts])
    if load.shape == "sum":
        return _limited(Sum([curve_of(part) for part in load.parts]), load.for_s)
    return _endless(load) if load.shape == "ramp" else _limited(_endless(load), load.for_s)


def _endless(load: Load) -> Integral:
    """The curve of a load without the limit `for_s`, which only a ramp needs here."""
    if load.parts:
        return curve_of(load.model_copy(update={"for_s": 0.0}))
    return _CURVES[load.shape](load)


def _constant(load: Load) -> Integral:
    return Curve((), hold=_milli(load.rate_per_second))


def _ramp(load: Load) -> Integral:
    start, end = _milli(load.from_rate_per_second), _milli(load.rate_per_second)
    return Curve((Ramp(_us(load.for_s), start, end),), hold=end)


def _steps(load: Load) -> Integral:
    rates = [_milli(each) for each in load.rates_per_second]
    return Curve([Ramp(_us(load.step_s), each, each) for each in rates], hold=rates[-1])


def _spike(load: Load) -> Integral:
    rate, peak = _milli(load.rate_per_second), _milli(load.peak_rate_per_second)
    before = (Ramp(_us(load.at_s), rate, rate),) if load.at_s else ()
    return Curve((*before, Ramp(_us(load.peak_s), peak, peak)), hold=rate)


def _fluctuating(load: Load) -> Integral:
    high = _milli(load.rate_per_second)
    given = load.low_rate_per_second
    low = high // 3 if given is None else _milli(given)
    half_us = _us(load.period_s)
    return Curve((Ramp(half_us, high, high), Ramp(half_us, low, low)), repeats=True)


def _single_burst(load: Load) -> Integral:
    burst = Curve((Burst(load.burst_ms * 1000, load.burst_records),))
    return Sum((_constant(load), burst))


def _periodic_burst(load: Load) -> Integral:
    return Sum((_constant(load), _bursts(load)))


def _sine(load: Load) -> Integral:
    return Curve(_wave(load), repeats=True)


def _bursts(load: Load) -> Integral:
    """A burst at the start of every period except the first."""
    burst_us = load.burst_ms * 1000
    quiet_us = _us(load.period_s) - burst_us
    pieces: list[Ramp | Burst] = [Burst(burst_us, load.burst_records)]
    if quiet_us:
        pieces.append(Ramp(quiet_us, 0, 0))
    return Chain(((Curve(()), _us(load.period_s)), (Curve(pieces, repeats=True), None)))


def _wave(load: Load) -> tuple[Ramp, ...]:
    """A sine wave approximated by ramps between integer rates, so that it integrates exactly. The
    corners lie on the sine, and a full wave has the mean rate."""
    cuts_us = [_us(load.period_s) * step // WAVE_PIECES for step in range(WAVE_PIECES + 1)]
    mean, height = _milli(load.rate_per_second), _milli(load.amplitude_per_second)
    quarter = [round(height * sin(2 * pi * step / WAVE_PIECES)) for step in range(91)]
    half = quarter + quarter[-2::-1]
    rates = [mean + swing for swing in half] + [mean - swing for swing in half[1:]]
    return tuple(
        Ramp(end_us - start_us, rates[step], rates[step + 1])
        for step, (start_us, end_us) in enumerate(pairwise(cuts_us))
        if end_us > start_us
    )


def _limited(curve: Integral, for_s: float) -> Integral:
    return Chain(((curve, _us(for_s)),)) if for_s else curve


def _duration_us(for_s: float) -> int | None:
    return _us(for_s) if for_s else None


def _us(seconds: float) -> int:
    return max(1, round(seconds * SECOND_US))


def _milli(rate_per_second: float) -> int:
    return round(rate_per_second * 1000)


_CURVES: dict[str, Callable[[Load], Integral]] = {
    "constant": _constant,
    "ramp": _ramp,
    "steps": _steps,
    "spike": _spike,
    "sine": _sine,
    "fluctuating": _fluctuating,
    "single_burst": _single_burst,
    "periodic_burst": _periodic_burst,
}
