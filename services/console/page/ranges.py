"""Charts of ranges: one row each, from a low to a high value on a logarithmic axis. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.console.page import svg
from services.console.page.charts import STYLES, amount
from services.console.page.markup import Markup, joined
from services.console.page.scales import logarithmic

WIDTH, ROW, TOP, BOTTOM = 640.0, 17.0, 8.0, 36.0
GROUP_GAP, RIGHT, DOT, CROSS = 7.0, 14.0, 3.6, 4.0
LETTER_WIDTH = 7.7  # of bold letters, which names use


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
    return svg.picture(WIDTH, height_of(groups), label, ranges(unit, groups))


def height_of(groups: Sequence[Sequence[Range]]) -> float:
    """Height of the picture."""
    return TOP + BOTTOM + sum(ROW * len(rows) + GROUP_GAP for rows in groups)


def ranges(unit: str, groups: Sequence[Sequence[Range]], width: float = WIDTH) -> Markup:
    """The content of such a picture."""
    rows = [row for group in groups for row in group]
    left = 10 + LETTER_WIDTH * max((len(row.name) for row in rows), default=0)
    values = [value for row in rows for value in (row.low, row.high, *row.reference)]
    x = logarithmic(0.0, max([1.0, *values]) * 1.1, left, width - RIGHT)
    bottom = height_of(groups) - BOTTOM
    parts = []
    for value in x.ticks:
        parts.append(svg.line(x(value), TOP, x(value), bottom, "grid"))
        parts.append(svg.text(x(value), bottom + 15, amount(value), "middle"))
    parts.append(svg.text((left + width - RIGHT) / 2, bottom + 31, unit, "middle", "unit"))
    y = TOP + ROW / 2
    for group in groups:
        for row in group:
            colour = STYLES[row.style % len(STYLES)][0]
            parts.append(svg.text(left - 7, y + 4, row.name, "end", "name"))
            parts.append(svg.path([[(x(row.low), y), (x(row.high), y)]], colour))
            parts.append(svg.dot(x(row.low), y, DOT, colour))
            parts += [svg.cross(x(value), y, CROSS) for value in row.reference]
            y += ROW
        y += GROUP_GAP
    return joined(parts)
