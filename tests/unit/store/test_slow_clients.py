"""Slow clients do not block others indefinitely."""

import http.client
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest

from services.runtime.settings import PORT_OFFSETS
from services.store.api.http_interface import serve_sql
from services.store.api.http_server import HttpLimits
from services.store.engine import Answer, Query
from services.store.settings import StoreSettings
from services.store.users import known_users

pytestmark = pytest.mark.unit

DEADLINE_S = 60.0
LONG_BYTES = 32 * 1024 * 1024  # more than the kernel buffers
HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
HELLO = "SELECT displayName(), version(), revision(), timezone()"
Opener = Callable[[], socket.socket]


class Engine:
    """Returns the query itself; the query `wait` blocks until it is released, `long` returns a long
    answer."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()

    def answer(self, query: Query) -> Answer:
        if query.text == "wait":
            self.begun.release()
            self.go_on.wait(DEADLINE_S)
        if query.text == "long":
            return Answer(b"x" * LONG_BYTES, query.output_format, 0, 0, 0.0)
        return Answer(query.text.encode(), query.output_format, 0, 0, 0.0)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def port(tmp_path: Path, engine: Engine) -> Iterator[int]:
    """Port of a store that allows two connections, half a second per request, and one long response
    at a time."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        base_port = probe.getsockname()[1] - PORT_OFFSETS["store"]
    settings = StoreSettings(
        data=tmp_path, base_port=base_port, query_slots=1, query_max_result_bytes=LONG_BYTES + 1000
    )
    users, limits = known_users(settings.secrets_dir, True), HttpLimits(2, 0.5)
    server = serve_sql(settings, users, engine, lambda: True, limits=limits)  # type: ignore[arg-type]
    yield settings.port("store")
    server.shutdown()


@pytest.fixture
def reader(port: int, tmp_path: Path) -> dict[str, str]:
    """Headers of a client with a password."""
    password = (tmp_path / "secrets" / "clickhouse-reader").read_text().strip()
    return {"X-ClickHouse-User": "reader", "X-ClickHouse-Key": password}


@pytest.fixture
def connect(port: int) -> Iterator[Opener]:
    """Opens connections; all are closed at the end."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(
            socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        )


def drip(connection: socket.socket, data: bytes) -> None:
    """Send a byte now and then until the other side disconnects."""
    with suppress(OSError):
        for byte in data:
            connection.sendall(bytes([byte]))
            time.sleep(0.02)


def whole_answer(connection: socket.socket) -> bytes:
    """All data until the end of a pong."""
    found = b""
    while not found.endswith(b"Ok.\n"):
        data = connection.recv(1000)
        assert data, found
        found += data
    return found


def head(text: str, headers: Mapping[str, str] | None = None) -> bytes:
    """A request with a query, in the format that clickhouse-go asks for."""
    fields = {"query": text, "default_format": "Native", "client_protocol_version": "54460"}
    lines = [f"GET /?{urlencode(fields)} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


def read_status(connection: socket.socket) -> int:
    """Read a whole response."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def ping(port: int) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    connection.request("GET", "/ping")
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


@pytest.mark.parametrize(
    ("at_once", "slowly"),
    [(b"", b"GET /" + b"x" * 1000), (b"GET / HTTP/1.1\r\nX: ", b"x" * 1000), (HEAD, b"x" * 1000)],
    ids=["line", "headers", "body"],
)
def test_a_request_that_comes_byte_by_byte_is_given_up(
    at_once: bytes, slowly: bytes, connect: Opener
) -> None:
    """It would be complete after 20 s, and no single byte is late."""
    begun_s = time.monotonic()
    connection = connect()
    connection.sendall(at_once)
    threading.Thread(target=drip, args=(connection, slowly), daemon=True).start()
    with suppress(ConnectionResetError):
        assert connection.recv(1000) == b""
    assert time.monotonic() - begun_s >= 0.4


def test_one_that_waits_makes_room_for_one_more(port: int, connect: Opener) -> None:
    held = [connect(), connect()]
    for connection in held:
        connection.sendall(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert whole_answer(connection).startswith(b"HTTP/1.1 200")
    assert ping(port) == (200, b"Ok.\n")
    closed, _, _ = select.select(held, [], [], DEADLINE_S)
    assert [connection.recv(1000) for connection in closed] == [b""]
    [left] = set(held) - set(closed)
    left.sendall(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert left.recv(1000).startswith(b"HTTP/1.1 200")


def test_whoever_finds_only_running_queries_is_told_so(
    engine: Engine, port: int, connect: Opener, reader: dict[str, str]
) -> None:
    held = [connect(), connect()]
    for connection in held:
        connection.sendall(head("wait", reader))
        assert engine.begun.acquire(timeout=DEADLINE_S)
    status, body = ping(port)
    assert (status, b"Too many connections" in body) == (503, True)
    engine.go_on.set()
    for connection in held:
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert ping(port)[0] == 200


@pytest.mark.parametrize("text", ["SELECT 1", HELLO])
def test_clients_without_a_password_query_on_half_of_the_connections(
    engine: Engine, text: str, connect: Opener, reader: dict[str, str]
) -> None:
    running, refused = connect(), connect()
    running.sendall(head("wait"))
    assert engine.begun.acquire(timeout=DEADLINE_S)
    refused.sendall(head(text))
    assert read_status(refused) == 503
    known = connect()
    known.sendall(head(text, reader))
    assert read_status(known) == 200
    engine.go_on.set()
    assert read_status(running) == 200
    running.sendall(head(text))
    assert read_status(running) == 200


def test_slow_readers_hold_a_bounded_number_of_bytes(
    port: int, connect: Opener, reader: dict[str, str]
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)

    def status_of(text: str, headers: dict[str, str]) -> int:
        connection.request("POST", "/", text.encode(), headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    slow = connect()
    slow.sendall(head("long"))
    assert slow.recv(1) == b"H"
    assert status_of("long", {}) == 503
    assert status_of("SELECT 1", {}) == 200
    assert status_of("long", reader) == 200
    slow.close()
    end_s = time.monotonic() + DEADLINE_S
    while status_of("long", {}) != 200:
        assert time.monotonic() < end_s
    connection.close()


def test_a_client_may_pause_between_two_requests(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    for pause_s in (0, 0.6):  # longer than the limit of a request
        time.sleep(pause_s)
        connection.request("POST", "/", b"SELECT 1")
        assert connection.getresponse().read() == b"SELECT 1"
    connection.close()
