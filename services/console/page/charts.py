"""Line charts: two axes, curves distinguished by colour, dashes and a name at their end.

Drawn 420 units wide so that text is legible on a phone; pages scale them. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.console.page import svg
from services.console.page.markup import Markup, joined
from services.console.page.scales import Scale, linear, logarithmic, spread

WIDTH, HEIGHT = 420.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 96.0, 12.0, 34.0
LABEL_HEIGHT = 13.0
LETTER_WIDTH = 6.4
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
