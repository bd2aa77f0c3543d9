"""Position of a value on an axis, and the values of its ticks. Pure."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

MOST_TICKS = 7


@dataclass(frozen=True)
class Scale:
    """One axis, which maps values from `low` to `high` to pixels from `start` to `end`.

    shape: transformation of a value before linear mapping; ticks: values with a grid line.
    """

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    shape: Callable[[float], float] = float

    def __call__(self, value: float) -> float:
        """The pixel of a value; values outside the range map outside the axis."""
        low, high = self.shape(self.low), self.shape(self.high)
        share = (self.shape(value) - low) / (high - low)
        return self.start + share * (self.end - self.start)


def linear(low: float, high: float, start: float, end: float) -> Scale:
    """A linear axis with round ticks; an empty range is widened by one."""
    if high <= low:
        high = low + 1
    return Scale(low, high, start, end, round_ticks(low, high))


def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    """An axis on the logarithm of one plus the value, for latencies: it includes zero, and negative
    values mirrored."""
    low = min(0.0, low)
    if high <= low:
        high = low + 1
    return Scale(low, high, start, end, _log_ticks(low, high), signed_log)


def signed_log(value: float) -> float:
    """log10(1 + |value|) with the sign of the value."""
    return math.copysign(math.log10(1 + abs(value)), value)


def round_ticks(low: float, high: float, most: int = 5) -> tuple[float, ...]:
    """At most `most` + 1 multiples of 1, 2 or 5 times a power of ten within a range."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return tuple(step * number for number in range(first, last + 1))


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    for factors in ((1, 2, 5), (1, 3), (1,)):
        positive = [f * 10.0**power for power in range(9) for f in factors]
        known = [-value for value in reversed(positive)] + [0.0] + positive
        found = tuple(value for value in known if low <= value <= high)
        if len(found) <= MOST_TICKS:
            return found
    return tuple(value for value in found if value == 0 or round(math.log10(abs(value))) % 2 == 0)


def spread(places: list[float], least: float, end: float) -> list[float]:
    """Positions of labels, moved so that neighbours are at least `least` apart and none is beyond
    `end`; the order is kept. Each is as close to its own position as that allows, from the top
    down."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = list(places)
    for before, index in pairwise(order):
        moved[index] = max(moved[index], moved[before] + least)
    limit = end
    for index in reversed(order):
        moved[index] = min(moved[index], limit)
        limit = moved[index] - least
    return moved
