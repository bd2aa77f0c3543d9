"""The meaning of an insert into a server that ends without ClickHouse's own response: a proxy
rejects it, closes the connection or truncates the response."""

import http.client
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from services.store.engine import EngineError, InsertTimeoutError, Query
from services.store.engines.server_engine import OVERHEAD_S, STATEMENT_TIMEOUT_S, ServerEngine
from services.store.settings import StoreSettings
from tests.unit.store.let_through import LetThrough

pytestmark = pytest.mark.unit

BLOCK = pa.table({"_offset": [4, 5]})
ITS_OWN = {"X-ClickHouse-Exception-Code": "252"}


class Server(BaseHTTPRequestHandler):
    """Accepts whole requests. `how`: the outcome of an INSERT: a status with headers, or `break
    off` or `cut short`; anything else gets a response, with `text` as its body. asked: the path of
    every request."""

    how: tuple[int, dict[str, str]] | str = (200, {})
    text: bytes = b""
    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self.rfile.read(int(self.headers["Content-Length"]))
        if "INSERT" not in self.path:
            self.tell(200, {}, self.text)
        elif isinstance(self.how, str):
            if self.how == "cut short":
                self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self.tell(*self.how)

    def tell(self, status: int, headers: dict[str, str], text: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Do not log."""


@contextmanager
def engine(
    tmp_path: Path, how: tuple[int, dict[str, str]] | str, text: bytes = b"", **limits: int
) -> Iterator[ServerEngine]:
    """The engine on a server that answers so. limits: of the settings."""

    class Handler(Server):
        pass

    Handler.how = how
    Server.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        settings = StoreSettings(
            data=tmp_path, clickhouse_url=address, clickhouse_manage_reader=False, **limits
        )
        opened = ServerEngine(settings, "", LetThrough())
        Handler.text = text
        yield opened
        server.shutdown()


@pytest.mark.parametrize(
    "how", [(500, {}), (502, {}), (503, {}), (504, {}), "break off", "cut short"], ids=str
)
def test_an_insert_of_which_clickhouse_said_nothing_may_have_been_made(
    tmp_path: Path, how: tuple[int, dict[str, str]] | str
) -> None:
    with engine(tmp_path, how) as found, pytest.raises(InsertTimeoutError):
        found.insert("results_latency", BLOCK)


@pytest.mark.parametrize("how", [(500, ITS_OWN), (503, ITS_OWN), (403, {}), (413, {})], ids=str)
def test_an_insert_that_was_refused_was_not_made(
    tmp_path: Path, how: tuple[int, dict[str, str]]
) -> None:
    with engine(tmp_path, how) as found, pytest.raises(EngineError) as caught:
        found.insert("results_latency", BLOCK)
    assert not isinstance(caught.value, InsertTimeoutError)


def test_an_insert_into_a_server_that_is_not_there_was_not_made(tmp_path: Path) -> None:
    with engine(tmp_path, (200, {})) as found:
        found.insert("results_latency", BLOCK)
    with pytest.raises(EngineError) as caught:
        found.insert("results_latency", BLOCK)
    assert not isinstance(caught.value, InsertTimeoutError)


def test_a_request_that_could_not_be_sent_whole_did_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def request(*_args: object, **_options: object) -> None:
        raise BrokenPipeError

    with engine(tmp_path, (200, {})) as found:
        monkeypatch.setattr(http.client.HTTPConnection, "request", request)
        with pytest.raises(EngineError) as caught:
            found.insert("results_latency", BLOCK)
        assert not isinstance(caught.value, InsertTimeoutError)


def test_a_server_on_this_machine_is_asked_past_any_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with engine(tmp_path, (200, {})) as found:
        found.insert("results_latency", BLOCK)


@pytest.mark.parametrize(
    ("may_write", "bounds"),
    [
        (False, {"max_execution_time": "30.0", "max_result_rows": "7", "readonly": "2"}),
        (True, {"max_execution_time": "600", "max_result_rows": "7"}),
    ],
)
def test_a_query_has_the_bounds_of_its_user_and_those_it_asks_for(
    tmp_path: Path, may_write: bool, bounds: dict[str, str]
) -> None:
    asked = {"max_execution_time": "600", "max_result_rows": "7", "max_memory_usage": "50000000"}
    with engine(tmp_path, (200, {})) as found:
        found.answer(Query("SELECT 1", settings=asked, may_write=may_write))
    sent = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(Server.asked[-1]).query))
    names = (*asked, "readonly")
    assert {name: sent[name] for name in names if name in sent} == bounds | {
        "max_memory_usage": "50000000"
    }
    assert ("max_threads" in sent) != may_write


@pytest.mark.parametrize(("may_write", "is_whole"), [(False, False), (True, True)])
def test_a_response_that_is_too_long_is_refused_to_a_reader(
    tmp_path: Path, may_write: bool, is_whole: bool
) -> None:
    text = b"x" * 2_000
    with engine(tmp_path, (200, {}), text, query_max_result_bytes=1_999) as found:
        if is_whole:
            assert len(found.answer(Query("SELECT 1", may_write=may_write)).data) == 2_000
            return
        with pytest.raises(EngineError, match="more than 1999 bytes") as caught:
            found.answer(Query("SELECT 1", may_write=may_write))
    assert caught.value.code == 396


def test_without_a_bound_of_time_the_server_has_as_long_as_for_a_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(tmp_path, (200, {})) as found:
        waits = []
        open_request = found._opener.open

        def opened(*given: object, timeout: float) -> object:
            waits.append(timeout)
            return open_request(*given, timeout=timeout)

        monkeypatch.setattr(found._opener, "open", opened)
        for seconds in ("0", "20"):
            asked = {"max_execution_time": seconds}
            found.answer(Query("SELECT 1", settings=asked, may_write=True))
    assert waits == [STATEMENT_TIMEOUT_S + OVERHEAD_S, 20 + OVERHEAD_S]
