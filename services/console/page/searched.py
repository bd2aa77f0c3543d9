"""The search of a run on its page: the result, and the evidence and steadiness of its steps.
Pure."""

from typing import Any

from services.console.page.markup import Markup, element
from services.console.progress import rate_line
from services.console.searched import HEADER, step_cells, step_reasons, steps_of


def search_section(report: dict[str, Any]) -> Markup:
    """report: of a run with a search."""
    header = element("tr", *(element("th", cell) for cell in (*HEADER, "reasons")))
    rows = [
        element("tr", *(element("td", cell) for cell in (*step_cells(step), step_reasons(step))))
        for step in steps_of(report)
    ]
    table = [element("div", element("table", header, *rows), class_="wide")] if rows else []
    return element(
        "section",
        element("h2", "Search for the sustainable rate"),
        element("p", rate_line(report["conclusion"]["search"])),
        *table,
    )
