"""The ledger of a run as bars and as a table. Pure."""

from typing import Any

from analysis.thresholds import not_exact
from schemas.protocol import VERDICTS
from services.console.page import svg
from services.console.page.markup import Markup, element, joined

COLOURS = {
    "exact": "#0072B2",
    "wrong": "#D55E00",
    "missing": "#1c2530",
    "late": "#E69F00",
    "duplicate": "#CC79A7",
    "unexpected": "#8C8C8C",
}
WIDTH, ROW, BAR = 420.0, 31.0, 9.0
LEAST = 3.0


def ledger_bars(report: dict[str, Any]) -> Markup:
    """One picture per pipeline with a bar per stage: the share of each verdict. Every verdict that
    occurs is visible (at least LEAST wide) and written above the bar."""
    return joined(_bars(name, one["stages"]) for name, one in report["pipelines"].items())


def ledger_table(report: dict[str, Any]) -> Markup:
    """All counts."""
    rows = [element("tr", element("th", "stage"), *(element("th", v) for v in VERDICTS))]
    for name, pipeline in report["pipelines"].items():
        for stage, cell in pipeline["stages"].items():
            counts = (_count(verdict, cell["verdicts"][verdict]) for verdict in VERDICTS)
            rows.append(element("tr", element("td", f"{name} {stage}"), *counts))
    caption = element("caption", "Verdicts of the measured phase")
    return element("div", element("table", caption, *rows), class_="wide")


def in_words(verdicts: dict[str, int]) -> str:
    """`1000 exact`, and all other verdicts that occur."""
    return ", ".join(filter(None, (f"{verdicts['exact']} exact", not_exact(verdicts))))


def widths(verdicts: dict[str, int], whole: float) -> dict[str, float]:
    """Width of each verdict that occurs; they sum to `whole`, each at least LEAST."""
    counts = {verdict: max(0, verdicts[verdict]) for verdict in VERDICTS}
    total = sum(counts.values())
    if not total:
        return {}
    found = {v: max(LEAST, whole * count / total) for v, count in counts.items() if count}
    largest = max(found, key=lambda verdict: found[verdict])
    found[largest] -= sum(found.values()) - whole
    return found


def _bars(pipeline: str, stages: dict[str, Any]) -> Markup:
    parts, y = [], 14.0
    for stage, cell in stages.items():
        parts.append(_row(stage, cell["verdicts"], y))
        y += ROW
    label = f"Share of each verdict, by stage: {pipeline}"
    return element("figure", element("h3", pipeline), svg.picture(WIDTH, y - 10, label, *parts))


def _row(label: str, verdicts: dict[str, int], y: float) -> Markup:
    parts = [svg.text(0, y, label, "start", "name")]
    parts.append(svg.text(WIDTH, y, in_words(verdicts), "end", "unit"))
    x = 0.0
    for verdict, width in widths(verdicts, WIDTH).items():
        parts.append(svg.rectangle(x, y + 4, max(1.0, width - 1), BAR, COLOURS[verdict]))
        x += width
    return joined(parts)


def _count(verdict: str, count: int) -> Markup:
    trouble = {"class_": "trouble"} if count and verdict != "exact" else {}
    return element("td", count, **trouble)
