"""A page of sections with text, a table and a picture, as HTML and as Markdown. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.console.page.markup import Markup, element, whole_page

PROSE_CHARACTERS = 32
FIGURE = ("", *"0123456789-(")  # first characters of a figure, or no character


@dataclass(frozen=True)
class Section:
    """A part of a page. rows: of a table below `header`; none without a header."""

    title: str
    words: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    caption: str = ""
    picture: Markup | None = None


@dataclass(frozen=True)
class Article:
    """A whole page."""

    title: str
    words: tuple[str, ...]
    sections: tuple[Section, ...]


def html(article: Article) -> Markup:
    """One self-contained file."""
    words = (element("p", text) for text in article.words)
    top = element("header", element("h1", article.title), *words)
    body = element("body", top, *(_section(one) for one in article.sections))
    return whole_page(article.title, body)


def markdown(article: Article) -> str:
    """The same without pictures."""
    parts = [f"# {article.title}", *article.words]
    for section in article.sections:
        parts += [f"## {section.title}", *section.words]
        if section.header:
            rows = [section.header, ("---",) * len(section.header), *section.rows]
            parts.append("\n".join(_line(row) for row in rows))
        if section.caption:
            parts.append(section.caption)
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> Markup:
    parts = [element("h2", section.title)]
    parts += [element("p", text) for text in section.words]
    if section.picture is not None:
        parts.append(element("figure", section.picture))
    if section.header:
        caption = [element("caption", section.caption)] if section.caption else []
        kinds = [_kind(column) for column in zip(*section.rows, strict=True)] or [
            "" for _ in section.header
        ]
        rows = [_row("th", section.header, kinds)]
        rows += [_row("td", row, kinds) for row in section.rows]
        parts.append(element("div", element("table", *caption, *rows), class_="wide"))
    return element("section", *parts)


def _kind(column: Sequence[str]) -> str:
    """Columns with sentences wrap; other text columns are left-aligned, as sentences are."""
    if any(len(text) > PROSE_CHARACTERS for text in column):
        return "prose"
    return "" if all(text[:1] in FIGURE for text in column) else "words"


def _row(tag: str, cells: Sequence[str], kinds: Sequence[str]) -> Markup:
    each = zip(cells, kinds, strict=True)
    return element("tr", *(element(tag, text, **_class(kind)) for text, kind in each))


def _class(kind: str) -> dict[str, str]:
    return {"class_": kind} if kind else {}


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
