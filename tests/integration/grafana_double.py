"""A test double of Grafana: the part of its HTTP API that is used here, in memory.

Data sources, folders, dashboards, queries and health: paths, bodies, statuses, and fields added to
requests, as grafana-client expects them. These tests have not run against a real Grafana.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
PLUGIN = "/api/plugins/grafana-clickhouse-datasource/settings"


@dataclass
class GrafanaDouble:
    """State and failures. failing: text in a query that makes it fail."""

    token: str = "secret-token"
    version: str = "12.1.0"
    plugin: bool = True
    read_only: bool = False
    failing: str | None = None
    datasources: dict[str, Json] = field(default_factory=dict)
    folders: dict[str, Json] = field(default_factory=dict)
    dashboards: dict[str, Json] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    queries: list[Json] = field(default_factory=list)
    url: str = ""

    def get(self, path: str) -> tuple[int, Json]:
        """Response to a GET."""
        if path == "/api/health":
            return 200, {"commit": "abc", "database": "ok", "version": self.version}
        if path == PLUGIN:
            return (200, {"enabled": True}) if self.plugin else _missing("Plugin not found")
        kind, _, uid = path.removeprefix("/api/").rpartition("/")
        held = {
            "datasources/uid": self.datasources,
            "folders": self.folders,
            "dashboards/uid": self.dashboards,
        }.get(kind, {})
        return (200, held[uid]) if uid in held else _missing(f"{kind} not found")

    def change(self, method: str, path: str, body: Json) -> tuple[int, Json]:
        """Response to a POST or PUT."""
        if path == "/api/ds/query":
            return self._query(body)
        if self.read_only:
            return 403, {"message": "You'll need additional permissions to perform this action."}
        self.writes.append(f"{method} {path}")
        if method == "POST" and path == "/api/folders":
            self.folders[body["uid"]] = body | {"id": 1, "version": 1}
            return 200, self.folders[body["uid"]]
        if (method, path) == ("POST", "/api/datasources") or path.startswith("/api/datasources/"):
            return self._datasource(method, body)
        if (method, path) == ("POST", "/api/dashboards/db"):
            return self._dashboard(body)
        return _missing("Not found")

    def _datasource(self, method: str, body: Json) -> tuple[int, Json]:
        uid = body["uid"]
        if method == "POST" and uid in self.datasources:
            return 409, {"message": "data source with the same name already exists"}
        kept = {key: value for key, value in body.items() if key != "secureJsonData"}
        secret = dict.fromkeys(body.get("secureJsonData", {}), True)
        own = {"id": 7, "orgId": 1, "readOnly": False, "secureJsonFields": secret}
        self.datasources[uid] = own | kept
        return 200, {"datasource": self.datasources[uid], "message": "Datasource added"}

    def _dashboard(self, body: Json) -> tuple[int, Json]:
        model = body["dashboard"]
        known = self.dashboards.get(model["uid"])
        if known is not None and not body.get("overwrite"):
            return 412, {"message": "The dashboard has been changed by someone else"}
        if body["folderUid"] not in self.folders:
            return 400, {"message": "folder not found"}
        version = known["dashboard"]["version"] + 1 if known else 1
        kept = model | {"id": 5, "version": version}
        meta = {"folderUid": body["folderUid"], "provisioned": False}
        self.dashboards[model["uid"]] = {"dashboard": kept, "meta": meta}
        return 200, {"uid": model["uid"], "status": "success", "version": version}

    def _query(self, body: Json) -> tuple[int, Json]:
        (query,) = body["queries"]
        self.queries.append(body)
        if query["datasource"]["uid"] not in self.datasources:
            return 404, {"message": "data source not found"}
        if self.failing and self.failing in query["rawSql"]:
            failed = {"error": "Code: 47. Unknown identifier", "status": 400, "frames": []}
            return 400, {"results": {query["refId"]: failed}}
        frame = {"schema": {"fields": [{"name": "value"}]}, "data": {"values": [["chosen"]]}}
        return 200, {"results": {query["refId"]: {"status": 200, "frames": [frame]}}}


def _missing(message: str) -> tuple[int, Json]:
    return 404, {"message": message}


@contextmanager
def serving(double: GrafanaDouble) -> Iterator[GrafanaDouble]:
    """Serve the double on a free loopback port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(lambda _body: double.get(self.path))

        def do_POST(self) -> None:
            self._answer(lambda body: double.change(self.command, self.path, body))

        def do_PUT(self) -> None:
            self.do_POST()

        def _answer(self, answered: Any) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") == f"Bearer {double.token}":
                status, found = answered(json.loads(body or b"{}"))
            else:
                status, found = 401, {"message": "Invalid API key"}
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    double.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield double
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
