"""Markup that is escaped by construction. Pure.

    element("td", report["workload"], class_="trouble")

Whatever is not `Markup` is text and is escaped, in content and in attributes. Only `element` and
`joined` create markup, so text from a run, a pipeline or a record cannot become markup.
"""

from collections.abc import Iterable
from html import escape
from pathlib import Path

VOID = frozenset({"meta"})
STYLE = Path(__file__).with_name("style.css")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


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
    lines = (element("tr", *(element(kind, one) for one in line)) for kind, line in cells)
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
