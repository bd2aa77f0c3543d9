"""A test double of Confluent's schema registry, with a login, that records requests."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Registry:
    """schemas: JSON of a response, by id. raw: bytes sent instead of a response, by id. asked:
    paths of authorised requests."""

    def __init__(self, user: str, password: str) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.raw: dict[int, bytes] = {}
        self.subjects: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.url = ""
        self._login = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def answer(self, path: str, login: str) -> tuple[int, dict[str, Any]]:
        """Status and body of the response."""
        if login != self._login:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        self.asked.append(path)
        if path in self.subjects:
            return 200, self.subjects[path]
        found = self.schemas.get(int(path.rpartition("/")[2]))
        return (200, found) if found else (404, {"error_code": 40403, "message": "not found"})


@contextmanager
def serving(registry: Registry) -> Iterator[Registry]:
    """Serve while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            raw = registry.raw.get(int(self.path.rpartition("/")[2]))
            if raw is not None:
                self.wfile.write(raw)
                return
            status, body = registry.answer(self.path, self.headers.get("Authorization", ""))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Do not log requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
