"""Pushes the dashboards to an existing Grafana and verifies that every query works there.

Idempotent. Failures are reported and do not stop the rest.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from services.console.grafana_api import PLUGIN, Grafana, GrafanaError, Json
from services.runtime.grafana_macros import ALL, TimeRange, Value, with_values
from services.runtime.settings import ROOT

DASHBOARDS: Final = ROOT / "deploy" / "grafana" / "dashboards"
DATASOURCE: Final = "tidegauge"
FOLDER_UID: Final = "tidegauge"
NOT_OURS: Final = ("id", "version")  # set by Grafana itself


@dataclass
class Outcome:
    """What was done and what failed, in sentences."""

    done: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    queries: int = 0
    answered: int = 0

    def attempt(self, what: str, do: Callable[[], str]) -> None:
        """Record the result of `do`, or its error."""
        try:
            self.done.append(f"{what}: {do()}")
        except GrafanaError as error:
            self.problems.append(f"{what}: {error}")


def dashboard_files(directory: Path = DASHBOARDS) -> Iterator[tuple[str, Json]]:
    """(folder's title, dashboard) of every file; folders are those of the file system."""
    for path in sorted(directory.rglob("*.json")):
        yield path.parent.name, json.loads(path.read_text())


def wanted_datasource(clickhouse: str, user: str, password: str) -> Json:
    """The data source for a ClickHouse at an HTTP address."""
    at = urlsplit(clickhouse)
    options: dict[str, Any] = {
        "host": at.hostname or "",
        "port": at.port or (8443 if at.scheme == "https" else 8123),
        "protocol": "http",
        "secure": at.scheme == "https",
        "username": user,
        "defaultDatabase": "tidegauge",
    }
    who = {"uid": DATASOURCE, "name": "Tidegauge", "type": PLUGIN, "access": "proxy"}
    secret = {"secureJsonData": {"password": password}} if password else {}
    return who | {"jsonData": options} | secret


def push(grafana: Grafana, datasource: Json) -> Outcome:
    """Install data source, folder and dashboards."""
    outcome = Outcome()
    old = grafana.too_old()
    if old:
        outcome.problems.append(old)
    if not grafana.has_plugin():
        outcome.problems.append(f"The plugin {PLUGIN} is not installed; the panels need it.")
    outcome.attempt("data source Tidegauge", partial(_put_datasource, grafana, datasource))
    for title in dict.fromkeys(title for title, _model in dashboard_files()):
        outcome.attempt(f"folder {title}", partial(_put_folder, grafana, title))
    for _title, model in dashboard_files():
        what = f"dashboard {model['title']}"
        outcome.attempt(what, partial(_put_dashboard, grafana, model))
    return outcome


def verify(grafana: Grafana, when: TimeRange) -> Outcome:
    """Run every query of every panel as Grafana does when a dashboard is first opened."""
    outcome = Outcome()
    if grafana.datasource(DATASOURCE) is None:
        outcome.problems.append("There is no data source Tidegauge: ./tidegauge grafana push")
    for _title, model in dashboard_files():
        if grafana.dashboard(model["uid"]) is None:
            outcome.problems.append(f"dashboard {model['title']}: is not there")
        _ask_all(grafana, model, when, outcome)
    outcome.done.append(f"{outcome.answered} of {outcome.queries} queries answer")
    return outcome


def _put_datasource(grafana: Grafana, wanted: Json) -> str:
    there = grafana.datasource(wanted["uid"])
    if there is not None and there.get("readOnly"):
        return "is provisioned by a file and was not changed"
    # A password cannot be read back, so it is always written.
    if there is not None and "secureJsonData" not in wanted and _holds(there, wanted):
        return "unchanged"
    grafana.put_datasource(wanted, exists=there is not None)
    return "created" if there is None else "updated"


def _holds(there: Json, wanted: Json) -> bool:
    """Whether all wanted keys are present; Grafana adds keys of its own."""
    return all(
        _holds(there.get(key, {}), value) if isinstance(value, dict) else there.get(key) == value
        for key, value in wanted.items()
    )


def _put_folder(grafana: Grafana, title: str) -> str:
    if grafana.folder(FOLDER_UID) is not None:
        return "unchanged"
    grafana.create_folder(FOLDER_UID, title)
    return "created"


def _put_dashboard(grafana: Grafana, model: Json) -> str:
    there = grafana.dashboard(model["uid"])
    if there is not None:
        mine = {key: value for key, value in there["dashboard"].items() if key not in NOT_OURS}
        if mine == model and there["meta"].get("folderUid") == FOLDER_UID:
            return "unchanged"
    grafana.put_dashboard(model, FOLDER_UID)
    return "created" if there is None else "updated"


def _ask_all(grafana: Grafana, model: Json, when: TimeRange, outcome: Outcome) -> None:
    values: dict[str, Value] = {}
    for variable in model["templating"]["list"]:
        place = f"{model['title']}, variable {variable['name']}"
        if variable["type"] == "custom":
            values[variable["name"]] = variable["current"]["value"]
        elif variable["type"] == "query":
            rows = _rows(grafana, (place, variable["query"]), when, values, outcome)
            first = str(rows[0][0]) if rows else ""
            values[variable["name"]] = ALL if variable["includeAll"] else first
    for panel in model["panels"]:
        for target in panel.get("targets", []):
            place = f"{model['title']}, {panel['title']}"
            _rows(grafana, (place, target), when, values, outcome)
    for annotation in model["annotations"]["list"]:
        place = f"{model['title']}, annotation {annotation['name']}"
        _rows(grafana, (place, annotation["target"]), when, values, outcome)


def _rows(
    grafana: Grafana,
    asked: tuple[str, Json],
    when: TimeRange,
    values: dict[str, Value],
    outcome: Outcome,
) -> list[tuple[Any, ...]]:
    place, target = asked
    outcome.queries += 1
    sent = target | {"rawSql": with_values(target["rawSql"], values)}
    try:
        rows = grafana.rows(DATASOURCE, sent, when)
    except GrafanaError as error:
        outcome.problems.append(f"{place}: {error}")
        return []
    outcome.answered += 1
    return rows
