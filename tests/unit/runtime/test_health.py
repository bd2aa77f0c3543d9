"""The health server with clients that keep connections open."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer

import pytest

from services.runtime import serving
from services.runtime.serving import MOST_CONNECTIONS, serve_health

pytestmark = pytest.mark.unit


@pytest.fixture
def port() -> Iterator[int]:
    server = serve_health("127.0.0.1", 0, lambda: True, silent_s=60.0)
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def test_who_holds_connections_open_loses_the_oldest_and_keeps_nobody_out(port: int) -> None:
    with ExitStack() as held:
        clients = [
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            for _ in range(MOST_CONNECTIONS)
        ]
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/health/ready")
        assert connection.getresponse().status == 200
        connection.close()
        assert clients[0].recv(1) == b""


def test_who_says_nothing_is_hung_up_on() -> None:
    server = serve_health("127.0.0.1", 0, lambda: True, silent_s=0.05)
    with socket.create_connection(server.server_address[:2], timeout=10) as client:
        client.sendall(b"GET /health/live HTTP/1.1\r\n")
        assert client.recv(1) == b""
    server.shutdown()
    server.server_close()


def test_a_server_that_sleeps_is_shut_down_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waits_s: list[float] = []
    serve = ThreadingHTTPServer.serve_forever

    def spy(server: ThreadingHTTPServer, poll_interval: float = 0.5) -> None:
        waits_s.append(poll_interval)
        serve(server, poll_interval)

    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", spy)
    server = serve_health("127.0.0.1", 0, lambda: True)
    began_s = time.monotonic()
    server.shutdown()
    assert time.monotonic() - began_s < serving.HEALTH_LOOK_S / 2
    assert waits_s == [serving.HEALTH_LOOK_S]
    server.server_close()
