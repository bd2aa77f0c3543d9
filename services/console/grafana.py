"""The verb `grafana`: installs the dashboards in an existing Grafana and verifies their queries.

Idempotent. Failures are reported and do not stop the rest. Everything in `Grafana` raises only
`GrafanaError`, with the message of the response.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import niquests
from grafana_client.api import GrafanaApi
from grafana_client.client import GrafanaException
from rich.console import Console
from rich.text import Text

from schemas.validation_errors import DefinitionError
from services.runtime.grafana_macros import ALL, TimeRange, Value, with_values
from services.runtime.settings import ROOT

PLUGIN: Final = "grafana-clickhouse-datasource"
OLDEST: Final = (11, 6)
TIMEOUT_S: Final = 30.0
NOT_FOUND: Final = 404
POINT_MS: Final = 5000
Json = dict[str, Any]
DASHBOARDS: Final = ROOT / "deploy" / "grafana" / "dashboards"
DATASOURCE: Final = "tidegauge"
FOLDER_UID: Final = "tidegauge"
NOT_OURS: Final = ("id", "version")  # set by Grafana itself
TOKEN: Final = "GRAFANA_TOKEN"
PASSWORD: Final = "TIDEGAUGE_CLICKHOUSE_PASSWORD"
LOOKS_BACK_MS: Final = 3_600_000


class GrafanaError(RuntimeError):
    """Grafana returned an error or could not be reached. status: of HTTP, 0 without a response."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Grafana:
    """One organisation of a Grafana, as visible to the token."""

    def __init__(self, url: str, token: str) -> None:
        logging.getLogger("grafana_client").setLevel(logging.CRITICAL)  # it logs whole responses
        self._api = GrafanaApi.from_url(url, credential=token, timeout=TIMEOUT_S)

    def too_old(self) -> str | None:
        """A sentence if this Grafana is too old to show the dashboards, else None."""
        version = str(self._ask("GET", "/health").get("version", ""))
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if len(numbers) == len(OLDEST) and numbers < OLDEST:
            return f"Grafana {version} is older than 11.6, for which the dashboards are made."
        return None

    def has_plugin(self) -> bool:
        """Whether the ClickHouse data source is installed."""
        return self._found(f"/plugins/{PLUGIN}/settings") is not None

    def datasource(self, uid: str) -> Json | None:
        """A data source, without its secrets."""
        return self._found(f"/datasources/uid/{uid}")

    def put_datasource(self, wanted: Json, exists: bool) -> None:
        """Create or update a data source."""
        path = f"/datasources/uid/{wanted['uid']}" if exists else "/datasources"
        self._ask("PUT" if exists else "POST", path, wanted)

    def folder(self, uid: str) -> Json | None:
        """A folder."""
        return self._found(f"/folders/{uid}")

    def create_folder(self, uid: str, title: str) -> None:
        """Create a folder."""
        self._ask("POST", "/folders", {"uid": uid, "title": title})

    def dashboard(self, uid: str) -> Json | None:
        """{"dashboard": model, "meta": …}."""
        return self._found(f"/dashboards/uid/{uid}")

    def put_dashboard(self, model: Json, folder_uid: str) -> None:
        """Create or replace a dashboard."""
        body = {"dashboard": model | {"id": None}, "folderUid": folder_uid, "overwrite": True}
        self._ask("POST", "/dashboards/db", body | {"message": "tidegauge grafana push"})

    def rows(self, datasource_uid: str, target: Json, when: TimeRange) -> list[tuple[Any, ...]]:
        """Result rows of one query; columns of several frames side by side."""
        source = {"type": PLUGIN, "uid": datasource_uid}
        query = target | {"datasource": source, "intervalMs": POINT_MS, "maxDataPoints": 1000}
        body = {"queries": [query], "from": str(when.from_ms), "to": str(when.to_ms)}
        answers = self._ask("POST", "/ds/query", body)
        if _reason(answers):
            raise GrafanaError(_reason(answers))
        answer = answers.get("results", {}).get(target["refId"], {})
        columns = [
            values
            for frame in answer.get("frames", [])
            for values in frame.get("data", {}).get("values", [])
        ]
        return list(zip(*columns, strict=False))

    def _found(self, path: str) -> Json | None:
        try:
            return self._ask("GET", path)
        except GrafanaError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        try:
            answer = getattr(self._api.client, method)(path, json=body)
        except niquests.exceptions.RequestException as error:
            raise GrafanaError(f"Grafana cannot be reached ({type(error).__name__}).") from error
        except GrafanaException as error:
            refusal = error.response if isinstance(error.response, dict) else {}
            message = _reason(refusal) or str(error.message)
            raise GrafanaError(message, int(error.status_code)) from error
        return answer if isinstance(answer, dict) else {}


def _reason(answer: Json) -> str:
    """The error message in the response to a query or another request."""
    for result in answer.get("results", {}).values():
        if result.get("error"):
            return str(result["error"])
    return str(answer.get("message", ""))


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


def grafana(
    console: Console,
    store: str,
    action: str,
    url: str,
    *,
    clickhouse: str | None = None,
    user: str | None = None,
) -> int:
    """Push and verify, or only verify; 0 only if everything is installed and every query works.

    store: HTTP address of the store. url: of Grafana. clickhouse, user: what the data source uses;
    None: the store, and `default`.
    """
    token = os.environ.get(TOKEN, "")
    if not token:
        raise DefinitionError(
            f"Set {TOKEN} to a token of a Grafana service account with the role Admin."
        )
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise DefinitionError(f"--url: {url} is not a URL such as http://grafana:3000")
    if action != "push" and (clickhouse or user):
        raise DefinitionError("--clickhouse and --user apply to `grafana push` only.")
    there = Grafana(url, token)
    now_ms = int(time.time() * 1000)
    try:
        outcomes = []
        if action == "push":
            address, password = clickhouse or store, os.environ.get(PASSWORD, "")
            outcomes.append(push(there, wanted_datasource(address, user or "default", password)))
        outcomes.append(verify(there, TimeRange(now_ms - LOOKS_BACK_MS, now_ms)))
    except GrafanaError as error:
        raise DefinitionError(f"{url}: {error}") from error
    return _show(console, outcomes)


def _show(console: Console, outcomes: list[Outcome]) -> int:
    for outcome in outcomes:
        for line in outcome.done:
            console.print(line, soft_wrap=True)
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    for problem in problems:
        console.print(Text.assemble(("not done:", "red"), f" {problem}"), soft_wrap=True)
    return 1 if problems else 0
