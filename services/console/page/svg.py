"""SVG elements as markup. Pure."""

from collections.abc import Iterable

from services.console.page.markup import Markup, element, joined, number, style_sheet

Point = tuple[float, float]
LONE = 2.0  # half the length of a curve of one point
# For pictures in files of their own: on light and dark pages.
OWN_STYLE = (
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#1c2530}"
    "path{stroke-width:3}.unit{fill:#5b6673}.name{font-weight:600}"
    ".grid{stroke:#d9dfe5}.cross{stroke:#1c2530;stroke-width:1.6}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.unit{fill:#9aa7b4}"
    ".grid{stroke:#38424d}.cross{stroke:#e6edf3}}"
)


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
