"""An HTTP server that receives webhooks."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver(ThreadingHTTPServer):
    """Keeps what was posted. answers: the statuses of the next answers; 200 when there are no
    more."""

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
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}/hook"

    def wait_for(self, count: int, timeout_s: float = 30) -> list[Any]:
        """What was posted, once so many have come."""
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
        """Nothing."""


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
