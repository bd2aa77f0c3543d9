"""Markup is escaped by construction, and no value on a page becomes markup."""

import copy
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest

from services.console.report import html
from services.console.report.charts import Markup, element, joined, style_sheet
from tests.unit.console.report.test_document import LINES, page
from tests.unit.console.test_show import a_report
from tests.unit.requests import a_request

pytestmark = pytest.mark.unit

HOSTILE = "<img src=x onerror=alert(1)>\"'&</title></style></table><b>"


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (element("td", "a < b & c"), "<td>a &lt; b &amp; c</td>"),
        (element("td", 3), "<td>3</td>"),
        (element("tr", element("td", "x")), "<tr><td>x</td></tr>"),
        (element("p", "x", class_='a" onclick="'), '<p class="a&quot; onclick=&quot;">x</p>'),
        (element("line", x1=1.26, stroke_width=2), '<line x1="1.3" stroke-width="2"></line>'),
        (element("meta", charset="utf-8"), '<meta charset="utf-8">'),
        (joined(("<b>", Markup("<i>"))), "&lt;b&gt;<i>"),
    ],
)
def test_what_is_not_markup_is_text(made: Markup, text: str) -> None:
    assert made == text
    assert isinstance(made, Markup)


def test_joined_strings_are_text_again() -> None:
    # Plain concatenation loses the markup type, so the text is escaped, not interpreted.
    forgotten = "".join([element("b", "x"), "<i>"])
    assert element("p", forgotten) == "<p>&lt;b&gt;x&lt;/b&gt;&lt;i&gt;</p>"


def test_a_style_sheet_cannot_end_itself() -> None:
    with pytest.raises(ValueError, match="cannot have '<'"):
        style_sheet("p { } </style><script>")


def test_only_one_module_makes_markup() -> None:
    with open(html.__file__) as file:
        text = file.read()
    assert "Markup(" not in text
    assert "</" not in text


class Elements(HTMLParser):
    """Counts elements and the attributes that would execute something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.shape: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.shape.append(" ".join([tag, *(name for name, _value in attrs)]))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of the numbers, texts and nulls in nested dictionaries and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in items:
        if isinstance(each, dict | list | tuple):
            yield from leaves(each, (*path, key))
        else:
            yield (*path, key)


def replaced(value: Any, path: tuple[Any, ...]) -> Any:
    found = copy.deepcopy(value)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = HOSTILE
    return found


REPORT = a_report() | {"environment": {"host": "x"}, "left_out": ["x"], "seconds_expired": True}
REQUEST = a_request().model_dump(mode="json")
PLACES = [("report", p) for p in leaves(REPORT)] + [("request", p) for p in leaves(REQUEST)]


@pytest.mark.parametrize(("which", "path"), PLACES)
def test_no_value_of_a_run_becomes_markup(which: str, path: tuple[Any, ...]) -> None:
    report = replaced(REPORT, path) if which == "report" else REPORT
    request = replaced(REQUEST, path) if which == "request" else REQUEST
    try:
        text = page(report, request, LINES)
    except (TypeError, ValueError):  # a number is required there
        return
    assert "<img" not in text
    assert not {"b", "img"} & {shape.partition(" ")[0] for shape in Elements(text).shape}
    assert not any("onerror" in shape for shape in Elements(text).shape)


def test_names_of_pipelines_and_stages_become_no_markup() -> None:
    one = REPORT["pipelines"]["spark-realtime"]
    stages = {HOSTILE: one["stages"]["join"]}
    text = page(REPORT | {"pipelines": {HOSTILE: one | {"stages": stages}}}, REQUEST, LINES)
    assert "<img" not in text


def test_what_a_plan_does_not_have_is_told_on_the_page() -> None:
    text = page(REPORT | {"left_out": ["other <b>", "definition x"]}, REQUEST, None)
    assert "plan are left out: “other &lt;b&gt;”, “definition x”." in text
