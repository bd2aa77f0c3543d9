"""Line charts: two axes, curves distinguished by colour, dashes and a name at their end. Charts of
ranges: one row each, from a low to a high value on a logarithmic axis.

Line charts are 420 units wide so that text is legible on a phone; pages scale them. Pure.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from services.console.page import svg
from services.console.page.markup import Markup, joined

WIDTH, HEIGHT = 420.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 96.0, 12.0, 34.0
LABEL_HEIGHT = 13.0
LETTER_WIDTH = 6.4
MOST_TICKS = 7
RANGE_WIDTH, RANGE_ROW, RANGE_TOP, RANGE_BOTTOM = 640.0, 17.0, 8.0, 36.0
GROUP_GAP, RANGE_RIGHT, DOT, CROSS = 7.0, 14.0, 3.6, 4.0
BOLD_LETTER_WIDTH = 7.7  # of bold letters, which names use
# Okabe and Ito (2008), distinguishable with all common kinds of colour blindness; plus dashes.
STYLES = (
    ("#767676", "2 3"),
    ("#E69F00", "7 3"),
    ("#009E73", ""),
    ("#0072B2", "10 3 2 3"),
    ("#3D1F5C", ""),
    ("#D55E00", "4 2"),
    ("#CC79A7", ""),
    ("#56B4E9", "7 3"),
)


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


@dataclass(frozen=True)
class Curve:
    """One line of a chart: its name, points by ascending x, and its index in STYLES.

    apart: points further apart than this are not joined, so a silence appears as a gap.
    """

    name: str
    points: tuple[svg.Point, ...]
    style: int = 0
    apart: float = float("inf")

    def pieces(self) -> list[list[svg.Point]]:
        """The points as runs without a gap."""
        found: list[list[svg.Point]] = []
        for point in self.points:
            if not found or point[0] - found[-1][-1][0] > self.apart:
                found.append([])
            found[-1].append(point)
        return found


@dataclass(frozen=True)
class Frame:
    """The parts of a chart around its curves.

    label: a text alternative. x_unit, y_unit: at the axes. y_low, y_high: the range; by default
    that of the curves. shade: a darker range on the x axis, and its label.
    """

    label: str
    x_unit: str
    y_unit: str
    x_high: float
    y_high: float | None = None
    y_low: float = 0.0
    log_x: bool = False
    log_y: bool = False
    shade: tuple[float, float, str] | None = None


def line_chart(frame: Frame, curves: Sequence[Curve]) -> Markup:
    """An SVG picture. Curves without points are omitted."""
    drawn = [curve for curve in curves if curve.points]
    values = [y for curve in drawn for _x, y in curve.points]
    x = _scale(frame.log_x, 0.0, frame.x_high, LEFT, WIDTH - _room(drawn))
    low = min([frame.y_low, *values])
    high = max(values, default=1.0) if frame.y_high is None else frame.y_high
    y = _scale(frame.log_y, low, high * 1.05, HEIGHT - BOTTOM, TOP)
    parts = [_shade(frame, x), _axes(frame, x, y)]
    for curve in drawn:
        places = [[(x(a), y(b)) for a, b in piece] for piece in curve.pieces()]
        parts.append(svg.path(places, *STYLES[curve.style % len(STYLES)]))
    parts.append(_names(drawn, x, y))
    return svg.picture(WIDTH, HEIGHT, frame.label, *parts)


def amount(value: float) -> str:
    """A number in the format of axes and tables: 1.5, 250, 12k, 3M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            unit = 1e3 if letter == "k" else size
            return f"{value / unit:.3g}{letter}"
    return f"{value:.4g}"


def _scale(log: bool, low: float, high: float, start: float, end: float) -> Scale:
    return (logarithmic if log else linear)(low, high, start, end)


def _room(curves: Sequence[Curve]) -> float:
    """Width needed at the right for the names of the curves."""
    longest = max((len(curve.name) for curve in curves), default=0)
    return max(RIGHT, 27 + LETTER_WIDTH * longest)


def _axes(frame: Frame, x: Scale, y: Scale) -> Markup:
    bottom, right = HEIGHT - BOTTOM, x.end
    parts = []
    for value in y.ticks:
        parts.append(svg.line(LEFT, y(value), right, y(value), "grid"))
        parts.append(svg.text(LEFT - 5, y(value) + 4, amount(value), "end"))
    for value in x.ticks:
        parts.append(svg.line(x(value), bottom, x(value), bottom + 4, "axis"))
        parts.append(svg.text(x(value), bottom + 16, amount(value), "middle"))
    parts.append(svg.line(LEFT, bottom, right, bottom, "axis"))
    parts.append(svg.text(LEFT - 5, TOP - 2, frame.y_unit, "end", "unit"))
    parts.append(svg.text((LEFT + right) / 2, HEIGHT - 4, frame.x_unit, "middle", "unit"))
    return joined(parts)


def _shade(frame: Frame, x: Scale) -> Markup:
    if frame.shade is None:
        return joined(())
    start, end, words = frame.shade
    left, width = x(start), x(end) - x(start)
    area = svg.rectangle(left, TOP, width, HEIGHT - BOTTOM - TOP, "#F1F4F7")
    return joined((area, svg.text(left + width / 2, TOP - 2, words, "middle", "unit")))


def _names(curves: Sequence[Curve], x: Scale, y: Scale) -> Markup:
    """Each curve's name at the right, connected to its last point by a piece of its line."""
    ends = [y(curve.points[-1][1]) for curve in curves]
    places = spread(ends, LABEL_HEIGHT, HEIGHT - BOTTOM)
    parts = []
    for curve, end, place in zip(curves, ends, places, strict=True):
        last = x(curve.points[-1][0])
        colour, dash = STYLES[curve.style % len(STYLES)]
        right = x.end
        parts.append(svg.line(last, end, right + 4, place, "lead"))
        parts.append(svg.path([[(right + 4, place), (right + 22, place)]], colour, dash))
        parts.append(svg.text(right + 25, place + 4, curve.name, "start", "name"))
    return joined(parts)


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


@dataclass(frozen=True)
class Range:
    """One row: a dot at `low` and a line to `high`. style: index in charts.STYLES. reference:
    values of another source, drawn as crosses."""

    name: str
    low: float
    high: float
    style: int = 3
    reference: tuple[float, ...] = ()


def range_chart(label: str, unit: str, groups: Sequence[Sequence[Range]]) -> Markup:
    """An SVG picture with separated groups. unit: at the axis."""
    return svg.picture(RANGE_WIDTH, height_of(groups), label, ranges(unit, groups))


def height_of(groups: Sequence[Sequence[Range]]) -> float:
    """Height of the picture."""
    return RANGE_TOP + RANGE_BOTTOM + sum(RANGE_ROW * len(rows) + GROUP_GAP for rows in groups)


def ranges(unit: str, groups: Sequence[Sequence[Range]], width: float = RANGE_WIDTH) -> Markup:
    """The content of such a picture."""
    rows = [row for group in groups for row in group]
    left = 10 + BOLD_LETTER_WIDTH * max((len(row.name) for row in rows), default=0)
    values = [value for row in rows for value in (row.low, row.high, *row.reference)]
    x = logarithmic(0.0, max([1.0, *values]) * 1.1, left, width - RANGE_RIGHT)
    bottom = height_of(groups) - RANGE_BOTTOM
    parts = []
    for value in x.ticks:
        parts.append(svg.line(x(value), RANGE_TOP, x(value), bottom, "grid"))
        parts.append(svg.text(x(value), bottom + 15, amount(value), "middle"))
    parts.append(svg.text((left + width - RANGE_RIGHT) / 2, bottom + 31, unit, "middle", "unit"))
    y = RANGE_TOP + RANGE_ROW / 2
    for group in groups:
        for row in group:
            colour = STYLES[row.style % len(STYLES)][0]
            parts.append(svg.text(left - 7, y + 4, row.name, "end", "name"))
            parts.append(svg.path([[(x(row.low), y), (x(row.high), y)]], colour))
            parts.append(svg.dot(x(row.low), y, DOT, colour))
            parts += [svg.cross(x(value), y, CROSS) for value in row.reference]
            y += RANGE_ROW
        y += GROUP_GAP
    return joined(parts)
