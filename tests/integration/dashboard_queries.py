"""Every query of the dashboard files, as Grafana sends it."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.grafana.program.__main__ import DASHBOARDS
from services.runtime.grafana_macros import ALL, TimeRange, Value, expand, interval_for

POINTS = 400
Ask = Callable[[str], list[dict[str, Any]]]


@dataclass(frozen=True)
class Asked:
    """One query and its location: the dashboard, and the title of a panel or the name of a
    variable."""

    dashboard: str
    kind: str
    name: str
    sql: str
    said_when_empty: str = ""


def dashboards() -> list[dict[str, Any]]:
    """Every dashboard file, parsed."""
    return [json.loads(path.read_text()) for path in sorted(DASHBOARDS.rglob("*.json"))]


def chosen(dashboard: dict[str, Any], when: TimeRange, ask: Ask) -> dict[str, Value]:
    """Initial values of the variables of a dashboard, in order."""
    values: dict[str, Value] = {}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "custom":
            values[variable["name"]] = variable["current"]["value"]
        elif variable["type"] == "query":
            found = ask(expand(variable["query"]["rawSql"], when, 1, values))
            first = str(next(iter(found[0].values()))) if found else ""
            values[variable["name"]] = ALL if variable["includeAll"] else first
    return values


def queries(dashboard: dict[str, Any], when: TimeRange, ask: Ask) -> Iterator[Asked]:
    """Every query of variables, panels and annotations, expanded."""
    values = chosen(dashboard, when, ask)
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            sql = expand(variable["query"]["rawSql"], when, 1, values)
            yield Asked(dashboard["title"], "variable", variable["name"], sql)
    yield from panel_queries(dashboard, when, values)
    for annotation in dashboard["annotations"]["list"]:
        sql = expand(annotation["target"]["rawSql"], when, 1, values)
        yield Asked(dashboard["title"], "annotation", annotation["name"], sql)


def panel_queries(
    dashboard: dict[str, Any], when: TimeRange, values: Mapping[str, Value]
) -> Iterator[Asked]:
    """Every query of a dashboard's panels, expanded with these values."""
    for panel in dashboard["panels"]:
        empty = panel["fieldConfig"]["defaults"].get("noValue", "")
        for target in panel.get("targets", []):
            sql = expand(target["rawSql"], when, interval_for(when, POINTS), values)
            yield Asked(dashboard["title"], panel["type"], panel["title"], sql, empty)


def alert_queries(path: Path) -> Iterator[tuple[str, str]]:
    """(title, SQL with macros) of every alert rule of a file."""
    for group in json.loads(path.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["title"], rule["data"][0]["model"]["rawSql"]
