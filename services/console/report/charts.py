"""Pictures for pages: line charts and charts of ranges as SVG, and markup that is escaped by
construction. Pure.

Line charts have two axes and curves distinguished by colour, dashes and a name at their end. They
are 420 units wide so that text is legible on a phone; pages scale them. Charts of ranges have one
row each, from a low to a high value on a logarithmic axis.

    element("td", report["workload"], class_="trouble")

Whatever is not `Markup` is text and is escaped, in content and in attributes. Only `element` and
`joined` create markup, so text from a run, a pipeline or a record cannot become markup.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

VOID = frozenset({"meta"})
STYLE = Path(__file__).with_name("style.css")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
Point = tuple[float, float]
LONE = 2.0  # half the length of a curve of one point
# For pictures in files of their own: on light and dark pages.
OWN_STYLE = (
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#1c2530}"
    "path{stroke-width:3}.curves path{stroke-width:2}.unit{fill:#5b6673}.name{font-weight:600}"
    ".axis,.lead{stroke:#8b96a3}.grid{stroke:#d9dfe5}.cross{stroke:#1c2530;stroke-width:1.6}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.unit{fill:#9aa7b4}"
    ".grid{stroke:#38424d}.cross{stroke:#e6edf3}}"
)
WIDTH, HEIGHT = 420.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 96.0, 12.0, 34.0
LABEL_HEIGHT = 13.0
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


class Markup(str):
    """Text that is already HTML or SVG. Created in this module only."""

    __slots__ = ()


def element(tag: str, /, *content: object, **attributes: object) -> Markup:
    """One element. Underscores in attribute names become hyphens; a trailing one is dropped:
    `class_`. Numbers in attributes have at most one decimal place."""
    marks = "".join(f' {_name(name)}="{_value(value)}"' for name, value in attributes.items())
    if tag in VOID:
        return Markup(f"<{tag}{marks}>")
    return Markup(f"<{tag}{marks}>{joined(content)}</{tag}>")


def joined(parts: Iterable[object]) -> Markup:
    """The concatenated parts."""
    return Markup("".join(p if isinstance(p, Markup) else escape(str(p)) for p in parts))


def wide_table(header: Iterable[object], rows: Iterable[Iterable[object]]) -> Markup:
    """A table that scrolls sideways if the page is narrow."""
    cells = [("th", header), *(("td", row) for row in rows)]
    lines = (element("tr", *(element(kind, each) for each in line)) for kind, line in cells)
    return element("div", element("table", *lines), class_="wide")


def whole_page(title: str, body: Markup) -> Markup:
    """A page in English: one self-contained file, whose policy forbids the browser to load anything
    else."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        style_sheet(STYLE.read_text()),
    )
    return Markup(f"<!doctype html>\n{element('html', head, body, lang='en')}\n")


def style_sheet(css: str) -> Markup:
    """A style sheet of this program. Raises ValueError if the text could close its own element."""
    if "<" in css:
        raise ValueError("a style sheet cannot have '<' in it")
    return element("style", Markup(css))


def number(value: float) -> str:
    """A coordinate."""
    return f"{value:.1f}".removesuffix(".0")


def _name(name: str) -> str:
    return name if name == "viewBox" else name.removesuffix("_").replace("_", "-")


def _value(value: object) -> str:
    return number(value) if isinstance(value, int | float) else escape(str(value))


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> Markup:
    """Text at a position; kind: a class of the page's style."""
    marks = {"class": kind} if kind else {}
    return element("text", words, x=x, y=y, text_anchor=anchor, **marks)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line in a class of the page's style."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def path(pieces: Iterable[Iterable[Point]], colour: str, dash: str = "") -> Markup:
    """A curve of several pieces; a piece of one point becomes a short stroke."""
    steps = []
    for piece in map(list, pieces):
        x, y = piece[0]
        places = piece if len(piece) > 1 else [(x - LONE, y), (x + LONE, y)]
        steps.append(f"M{'L'.join(f'{number(x)} {number(y)}' for x, y in places)}")
    marks = {"stroke_dasharray": dash} if dash else {}
    return element("path", d="".join(steps), stroke=colour, fill="none", **marks)


def rectangle(x: float, y: float, width: float, height: float, colour: str) -> Markup:
    """A filled rectangle."""
    return element("rect", x=x, y=y, width=width, height=height, fill=colour)


def picture(width: float, height: float, label: str, *content: Markup) -> Markup:
    """A picture that fills the available width; `label` is its text alternative."""
    return element(
        "svg",
        element("title", label),
        *content,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_label=label,
    )


@dataclass(frozen=True)
class Picture:
    """A picture in a page or in a file of its own. label: its text alternative."""

    width: float
    height: float
    label: str
    content: Markup

    def in_page(self) -> Markup:
        """As `picture`."""
        return picture(self.width, self.height, self.label, self.content)

    def as_file(self) -> Markup:
        """As `file`."""
        return file(self.width, self.height, self.label, self.content)


def dot(x: float, y: float, radius: float, colour: str) -> Markup:
    """A filled circle."""
    return element("circle", cx=x, cy=y, r=radius, fill=colour)


def cross(x: float, y: float, half: float) -> Markup:
    """A cross of two lines, in the class `cross` of the page's style."""
    return joined(
        (
            line(x - half, y - half, x + half, y + half, "cross"),
            line(x - half, y + half, x + half, y - half, "cross"),
        )
    )


def file(width: float, height: float, label: str, *content: Markup) -> Markup:
    """A picture as a separate file, readable on light and dark pages."""
    return element(
        "svg",
        element("title", label),
        style_sheet(OWN_STYLE),
        *content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=width,
        height=height,
        role="img",
        aria_label=label,
    )


@dataclass(frozen=True)
class Axis:
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
class Line:
    """One line of a chart: its name, points by ascending x, and its index in STYLES.

    apart: points further apart than this are not joined, so a silence appears as a gap.
    """

    name: str
    points: tuple[Point, ...]
    style: int = 0
    apart: float = float("inf")

    def pieces(self) -> list[list[Point]]:
        """The points as runs without a gap."""
        result: list[list[Point]] = []
        for point in self.points:
            if not result or point[0] - result[-1][-1][0] > self.apart:
                result.append([])
            result[-1].append(point)
        return result


@dataclass(frozen=True)
class ChartFrame:
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


def line_chart(frame: ChartFrame, curves: Sequence[Line]) -> Markup:
    """An SVG picture. Curves without points are omitted."""
    return line_picture(frame, curves).in_page()


def line_picture(frame: ChartFrame, curves: Sequence[Line]) -> Picture:
    """The same as a Picture."""
    drawn = [curve for curve in curves if curve.points]
    values = [y for curve in drawn for _x, y in curve.points]
    x = _scale(frame.log_x, 0.0, frame.x_high, LEFT, WIDTH - _room(drawn))
    low = min([frame.y_low, *values])
    high = max(values, default=1.0) if frame.y_high is None else frame.y_high
    y = _scale(frame.log_y, low, high * 1.05, HEIGHT - BOTTOM, TOP)
    parts = [_shade(frame, x), _axes(frame, x, y)]
    for curve in drawn:
        places = [[(x(a), y(b)) for a, b in piece] for piece in curve.pieces()]
        parts.append(path(places, *STYLES[curve.style % len(STYLES)]))
    parts.append(_names(drawn, x, y))
    return Picture(WIDTH, HEIGHT, frame.label, element("g", *parts, class_="curves"))


def amount(value: float) -> str:
    """A number in the format of axes and tables: 1.5, 250, 12k, 3M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            unit = 1e3 if letter == "k" else size
            return f"{value / unit:.3g}{letter}"
    return f"{value:.4g}"


def _scale(log: bool, low: float, high: float, start: float, end: float) -> Axis:
    return (logarithmic if log else linear)(low, high, start, end)


def _room(curves: Sequence[Line]) -> float:
    """Width needed at the right for the names of the curves."""
    longest = max((len(curve.name) for curve in curves), default=0)
    return max(RIGHT, 27 + BOLD_LETTER_WIDTH * longest)


def _axes(frame: ChartFrame, x: Axis, y: Axis) -> Markup:
    bottom, right = HEIGHT - BOTTOM, x.end
    parts = []
    for value in y.ticks:
        parts.append(line(LEFT, y(value), right, y(value), "grid"))
        parts.append(text(LEFT - 5, y(value) + 4, amount(value), "end"))
    for value in x.ticks:
        parts.append(line(x(value), bottom, x(value), bottom + 4, "axis"))
        parts.append(text(x(value), bottom + 16, amount(value), "middle"))
    parts.append(line(LEFT, bottom, right, bottom, "axis"))
    parts.append(text(LEFT - 5, TOP - 2, frame.y_unit, "end", "unit"))
    parts.append(text((LEFT + right) / 2, HEIGHT - 4, frame.x_unit, "middle", "unit"))
    return joined(parts)


def _shade(frame: ChartFrame, x: Axis) -> Markup:
    if frame.shade is None:
        return joined(())
    start, end, words = frame.shade
    left, width = x(start), x(end) - x(start)
    area = rectangle(left, TOP, width, HEIGHT - BOTTOM - TOP, "#F1F4F7")
    return joined((area, text(left + width / 2, TOP - 2, words, "middle", "unit")))


def _names(curves: Sequence[Line], x: Axis, y: Axis) -> Markup:
    """Each curve's name at the right, connected to its last point by a piece of its line."""
    ends = [y(curve.points[-1][1]) for curve in curves]
    places = spread(ends, LABEL_HEIGHT, HEIGHT - BOTTOM)
    parts = []
    for curve, end, place in zip(curves, ends, places, strict=True):
        last = x(curve.points[-1][0])
        colour, dash = STYLES[curve.style % len(STYLES)]
        right = x.end
        parts.append(line(last, end, right + 4, place, "lead"))
        parts.append(path([[(right + 4, place), (right + 22, place)]], colour, dash))
        parts.append(text(right + 25, place + 4, curve.name, "start", "name"))
    return joined(parts)


def linear(low: float, high: float, start: float, end: float) -> Axis:
    """A linear axis with round ticks; an empty range is widened by one."""
    if high <= low:
        high = low + 1
    return Axis(low, high, start, end, round_ticks(low, high))


def logarithmic(low: float, high: float, start: float, end: float) -> Axis:
    """An axis on the logarithm of one plus the value, for latencies: it includes zero, and negative
    values mirrored."""
    low = min(0.0, low)
    if high <= low:
        high = low + 1
    return Axis(low, high, start, end, _log_ticks(low, high), signed_log)


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
        result = tuple(value for value in known if low <= value <= high)
        if len(result) <= MOST_TICKS:
            return result
    return tuple(value for value in result if value == 0 or round(math.log10(abs(value))) % 2 == 0)


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


def range_picture(label: str, unit: str, groups: Sequence[Sequence[Range]]) -> Picture:
    """A picture with separated groups. unit: at the axis."""
    return Picture(RANGE_WIDTH, height_of(groups), label, ranges(unit, groups))


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
        parts.append(line(x(value), RANGE_TOP, x(value), bottom, "grid"))
        parts.append(text(x(value), bottom + 15, amount(value), "middle"))
    parts.append(text((left + width - RANGE_RIGHT) / 2, bottom + 31, unit, "middle", "unit"))
    y = RANGE_TOP + RANGE_ROW / 2
    for group in groups:
        for row in group:
            colour = STYLES[row.style % len(STYLES)][0]
            parts.append(text(left - 7, y + 4, row.name, "end", "name"))
            parts.append(path([[(x(row.low), y), (x(row.high), y)]], colour))
            parts.append(dot(x(row.low), y, DOT, colour))
            parts += [cross(x(value), y, CROSS) for value in row.reference]
            y += RANGE_ROW
        y += GROUP_GAP
    return joined(parts)
