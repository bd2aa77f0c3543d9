"""Pieces of SVG as text. Pure. Everything that is not a number is escaped."""

from collections.abc import Iterable
from html import escape

Point = tuple[float, float]
LONE = 2.0  # half the length of a curve of one point


def element(tag: str, content: str = "", /, **attributes: str | float) -> str:
    """One element; `content` is markup already. Underscores in names become hyphens."""
    texts = [f' {_name(name)}="{_value(value)}"' for name, value in attributes.items()]
    return f"<{tag}{''.join(texts)}>{content}</{tag}>"


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    """Words at a place; kind: a class of the page's style."""
    marks = {"class": kind} if kind else {}
    return element("text", escape(words), x=x, y=y, text_anchor=anchor, **marks)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line in a class of the page's style."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **{"class": kind})


def path(pieces: Iterable[Iterable[Point]], colour: str, dash: str = "") -> str:
    """A curve of several pieces; a piece of one point becomes a short stroke."""
    steps = []
    for piece in map(list, pieces):
        x, y = piece[0]
        places = piece if len(piece) > 1 else [(x - LONE, y), (x + LONE, y)]
        steps.append(f"M{'L'.join(f'{_number(x)} {_number(y)}' for x, y in places)}")
    marks = {"stroke_dasharray": dash} if dash else {}
    return element("path", d="".join(steps), stroke=colour, fill="none", **marks)


def rectangle(x: float, y: float, width: float, height: float, colour: str) -> str:
    """A filled rectangle."""
    return element("rect", x=x, y=y, width=width, height=height, fill=colour)


def picture(width: float, height: float, label: str, content: str) -> str:
    """A whole picture that takes the width it is given; `label` says what it shows."""
    return element(
        "svg",
        element("title", escape(label)) + content,
        viewBox=f"0 0 {_number(width)} {_number(height)}",
        role="img",
        aria_label=label,
    )


def _name(name: str) -> str:
    return name if name == "viewBox" else name.replace("_", "-")


def _value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else _number(value)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
