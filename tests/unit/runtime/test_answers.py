"""Requests to services on this machine: without a proxy, and errors of broken responses."""

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, BinaryIO

import pytest

from deploy.wheel import client
from services.console import rebuilding
from services.runtime.clickhouse import QueryError, ServerRefusedError, StoreUrl, answer_to, query

pytestmark = pytest.mark.unit

NOBODY = "http://127.0.0.1:9"  # a proxy that refuses every connection
ASKERS: list[Callable[[str], Any]] = [
    lambda url: query(url, "SELECT 1"),
    lambda url: rebuilding._ask(StoreUrl(url), "GET", "/rebuild"),
    lambda url: client._answer_to(f"{url}/health/ready", 5),
]


@contextmanager
def server(answer: bytes, host: str = "127.0.0.1") -> Iterator[tuple[str, list[bytes]]]:
    """A server that sends this response to every request and closes: its address, and the
    requests."""
    requests: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.settimeout(10)
            with connection, connection.makefile("rb") as file:
                requests.append(_request(file))
                connection.sendall(answer)

    with socket.create_server((host, 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://{host}:{listener.getsockname()[1]}", requests
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _request(file: BinaryIO) -> bytes:
    """A request with its body; unread data would reset the connection."""
    lines = list(takewhile(lambda line: line != b"\r\n", file))
    lengths = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-l")]
    return b"".join(lines) + file.read(sum(lengths))


@pytest.fixture(autouse=True)
def _no_proxy_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("ask", ASKERS, ids=["query", "rebuild", "package"])
def test_a_proxy_hears_nothing_of_what_this_machine_is_asked(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[str], Any]
) -> None:
    monkeypatch.setenv("http_proxy", NOBODY)
    with server(b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}') as (url, requests):
        ask(url)
        assert len(requests) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
@pytest.mark.parametrize("ask", ASKERS, ids=["query", "rebuild", "package"])
def test_any_address_of_this_machine_is_asked_without_the_proxy(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[str], Any]
) -> None:
    monkeypatch.setenv("http_proxy", NOBODY)
    answer = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}'
    with server(answer, "127.0.0.2") as (url, requests):
        ask(url)
        assert len(requests) == 1


def test_what_is_elsewhere_is_asked_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi") as (proxy, requests):
        monkeypatch.setenv("http_proxy", proxy)
        assert answer_to("http://store.example/health/ready", 5) == b"hi"
    assert requests[0].startswith(b"GET http://store.example/health/ready ")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\nhalf",
        b"nothing of the kind\r\n",
    ],
    ids=["answer", "refusal", "no HTTP"],
)
@pytest.mark.parametrize("ask", ASKERS, ids=["query", "rebuild", "package"])
def test_an_answer_that_breaks_off_is_told_in_words(
    ask: Callable[[str], Any], answer: bytes
) -> None:
    with server(answer) as (url, _), pytest.raises((QueryError, OSError), match="is incomplete"):
        ask(url)


@pytest.mark.parametrize("ask", ASKERS, ids=["query", "rebuild", "package"])
def test_the_target_of_a_redirect_hears_nothing(ask: Callable[[str], Any]) -> None:
    with server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi") as (elsewhere, requests):
        head = f"HTTP/1.1 302 Found\r\nLocation: {elsewhere}/\r\nContent-Length: 0\r\n\r\n"
        with (
            server(head.encode()) as (url, _),
            pytest.raises((QueryError, OSError), match="redirects to another address"),
        ):
            ask(url)
    assert requests == []


def test_what_a_server_refuses_is_told_as_it_says_it() -> None:
    refusal = b"HTTP/1.1 404 Not Found\r\nContent-Length: 8\r\n\r\nno table"
    with server(refusal) as (url, _):
        with pytest.raises(QueryError, match=r"^no table$"):
            query(url, "SELECT 1")
        with pytest.raises(ServerRefusedError, match=r"^no table$"):
            answer_to(url, 5)
