"""An HTTP server that receives webhooks."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver(ThreadingHTTPServer):
    """Stores what was posted. answers: status codes of the next responses, then 200."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.answers: list[int] = []
        self.came = threading.Condition()

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.server_port}/hook"

    def wait_for(self, count: int, timeout_s: float = 30) -> list[Any]:
        """The posted bodies, once there are `count` of them."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.bodies) >= count, timeout_s), self.bodies
            return list(self.bodies)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.came:
            status = self.server.answers.pop(0) if self.server.answers else 200
            if status == 200:
                self.server.bodies.append(body)
                self.server.headers.append(dict(self.headers))
            self.server.came.notify_all()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", self.server.url)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """A receiver while the block runs."""
    server = Receiver(port)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
