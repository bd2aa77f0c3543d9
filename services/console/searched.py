"""The steps of a search for the sustainable rate, in its report. Pure."""

from collections.abc import Iterable
from typing import Any

from rich.table import Table

from services.console.terminal import titled_table

Report = dict[str, Any]
HEADER = ("step", "records/s", "warm-up", "measured", "result", "limited by", "steady")
STEADY: dict[bool | None, str] = {True: "yes", False: "no", None: "–"}
SHOWN = 3  # changing figures of a step


def steps_of(report: Report) -> list[dict[str, Any]]:
    """The judged steps of a run's search, in order; empty without a search."""
    search = report["conclusion"].get("search") or {}
    return list(search.get("steps", ()))


def step_cells(step: dict[str, Any]) -> tuple[str, ...]:
    """A step in the columns of HEADER; a dash if unknown."""
    result = "sustained" if step["sustained"] else "NOT sustained"
    return (
        str(step["step"]),
        f"{step['rate_per_second']:.0f}",
        _seconds(step["warm_up_s"]),
        _seconds(step["measured_s"]),
        "undecided" if step["undecided"] else result,
        step["limited_by"],
        STEADY[step["steady"]],
    )


def step_reasons(step: dict[str, Any]) -> str:
    """Why a step was not sustained, and what was not steady."""
    moving = _moving(step)
    return " ".join([*step["reasons"], *([f"Not steady: {moving}."] if moving else [])])


def unsteady_sentences(report: Report) -> list[str]:
    """The sustained steps that were not steady, one sentence each. At other rates latencies rise
    because of the load."""
    return [
        f"The step at {step['rate_per_second']:.0f}/s was sustained, but not steady: "
        f"{_moving(step)}."
        for step in steps_of(report)
        if step["sustained"] and _moving(step)
    ]


def steps_table(steps: Iterable[dict[str, Any]]) -> Table:
    """The steps as a terminal table."""
    table = titled_table("steps of the search")
    for column in HEADER:
        table.add_column(column, justify="left" if column == "result" else "right")
    for step in steps:
        table.add_row(*step_cells(step))
    return table


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:g} s"


def _moving(step: dict[str, Any]) -> str:
    found = step["moving"]
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"{'; '.join(found[:SHOWN])}{more}"
