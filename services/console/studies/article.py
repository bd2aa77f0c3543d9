"""A page of sections with text, a table and pictures, as HTML and as Markdown. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.console.report.charts import Markup, Picture, element, whole_page

PROSE_CHARACTERS = 32
FIGURE = ("", *"0123456789-(")  # first characters of a figure, or no character


@dataclass(frozen=True)
class Section:
    """A part of a page. rows: of a table below `header`; none without a header. name: in the names
    of the files of its pictures; these by their captions, empty for one without."""

    title: str
    words: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    caption: str = ""
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    name: str = ""

    def files(self, stem: str) -> dict[str, str]:
        """The names of the files of its pictures, which begin with `stem`, by their captions."""
        many = len(self.pictures) > 1
        return {
            caption: f"{stem}-{self.name}{f'-{number}' if many else ''}.svg"
            for number, caption in enumerate(self.pictures, start=1)
        }


@dataclass(frozen=True)
class Article:
    """A whole page."""

    title: str
    words: tuple[str, ...]
    sections: tuple[Section, ...]

    def pictures(self, stem: str) -> dict[str, Picture]:
        """All pictures by the names of their files."""
        return {
            name: section.pictures[caption]
            for section in self.sections
            for caption, name in section.files(stem).items()
        }


def html(article: Article) -> Markup:
    """One self-contained file."""
    words = (element("p", text) for text in article.words)
    top = element("header", element("h1", article.title), *words)
    body = element("body", top, *(_page_section(section) for section in article.sections))
    return whole_page(article.title, body)


def markdown(article: Article, stem: str) -> str:
    """The same, with the pictures in files beside it whose names begin with `stem`."""
    parts = [f"# {article.title}", *article.words]
    for section in article.sections:
        parts += [f"## {section.title}", *section.words]
        for caption, file in section.files(stem).items():
            parts += [f"{caption}:"] if caption else []
            parts.append(f"![{section.pictures[caption].label}]({file})")
        if section.header:
            rows = [section.header, ("---",) * len(section.header), *section.rows]
            parts.append("\n".join(_line(row) for row in rows))
        if section.caption:
            parts.append(section.caption)
    return "\n\n".join(parts) + "\n"


def _page_section(section: Section) -> Markup:
    parts = [element("h2", section.title)]
    parts += [element("p", text) for text in section.words]
    small: list[Markup] = []
    for words, each in section.pictures.items():
        if words:
            small.append(element("figure", element("h3", words), each.in_page()))
        else:
            parts.append(element("figure", each.in_page()))
    if small:
        parts.append(element("div", *small, class_="charts"))
    if section.header:
        caption = [element("caption", section.caption)] if section.caption else []
        kinds = [_kind(column) for column in zip(*section.rows, strict=True)] or [
            "" for _ in section.header
        ]
        rows = [_table_row("th", section.header, kinds)]
        rows += [_table_row("td", row, kinds) for row in section.rows]
        parts.append(element("div", element("table", *caption, *rows), class_="wide"))
    return element("section", *parts)


def _kind(column: Sequence[str]) -> str:
    """Columns with sentences wrap; other text columns are left-aligned, as sentences are."""
    if any(len(text) > PROSE_CHARACTERS for text in column):
        return "prose"
    return "" if all(text[:1] in FIGURE for text in column) else "words"


def _table_row(tag: str, cells: Sequence[str], kinds: Sequence[str]) -> Markup:
    each = zip(cells, kinds, strict=True)
    return element("tr", *(element(tag, text, **_class(kind)) for text, kind in each))


def _class(kind: str) -> dict[str, str]:
    return {"class_": kind} if kind else {}


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
