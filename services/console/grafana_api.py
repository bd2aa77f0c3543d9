"""An existing Grafana through its HTTP API: its capabilities and contents.

Everything here raises only `GrafanaError`, with the message of the response.
"""

import logging
from typing import Any, Final

import niquests
from grafana_client.api import GrafanaApi
from grafana_client.client import GrafanaException

from services.runtime.grafana_macros import TimeRange

PLUGIN: Final = "grafana-clickhouse-datasource"
OLDEST: Final = (11, 6)
TIMEOUT_S: Final = 30.0
NOT_FOUND: Final = 404
POINT_MS: Final = 5000
Json = dict[str, Any]


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
            said = error.response if isinstance(error.response, dict) else {}
            message = _reason(said) or str(error.message)
            raise GrafanaError(message, int(error.status_code)) from error
        return answer if isinstance(answer, dict) else {}


def _reason(answer: Json) -> str:
    """The error message in the response to a query or another request."""
    for result in answer.get("results", {}).values():
        if result.get("error"):
            return str(result["error"])
    return str(answer.get("message", ""))
