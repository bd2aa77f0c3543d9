"""Messages go through the proxy of the environment."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from services.conductor.notices.posting import NotTakenError, post

pytestmark = pytest.mark.unit
HOOK = "https://hooks.example.invalid/services/T0"


@pytest.fixture(autouse=True)
def no_exception_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def a_proxy(answer: Callable[[socket.socket], None]) -> Iterator[tuple[int, list[str]]]:
    """Its port, and the head of each request, which `answer` answers."""
    heads: list[str] = []

    def serve(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _address = server.accept()
                with connection, suppress(OSError):
                    head = b""
                    while b"\r\n\r\n" not in head:
                        head += connection.recv(4096)
                    heads.append(head.decode())
                    answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        yield server.getsockname()[1], heads
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def said(text: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(text)


def test_an_https_receiver_is_asked_for_by_a_tunnel_with_the_login_of_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with a_proxy(said(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")) as (port, heads):
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:word@127.0.0.1:{port}")
        with pytest.raises(NotTakenError, match=rf"proxy 127\.0\.0\.1:{port} .*502") as raised:
            post(HOOK, {"text": "secret text"}, "1", "token", 5)
    (head,) = heads
    assert head.startswith("CONNECT hooks.example.invalid:443 HTTP/1.")
    assert "Proxy-Authorization: Basic bWU6d29yZA==" in head
    assert "token" not in head
    assert "word" not in str(raised.value)
    assert not raised.value.for_good


def test_an_http_receiver_is_asked_for_by_its_whole_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ok = said(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    with a_proxy(ok) as (port, heads):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        post("http://mattermost.invalid:8065/hooks/x?y=1", {"text": "t"}, "1", "", 5)
    (head,) = heads
    assert head.startswith("POST http://mattermost.invalid:8065/hooks/x?y=1 HTTP/1.1\r\n")
    assert "Host: mattermost.invalid:8065\r\n" in head


def test_a_proxy_that_answers_byte_by_byte_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def drip(connection: socket.socket) -> None:
        for byte in b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 10_000:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)

    with a_proxy(drip) as (port, _heads):
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        with pytest.raises(NotTakenError, match="TimeoutError"):
            post(HOOK, {}, "1", "", 0.3)


def test_a_proxy_of_another_kind_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(NotTakenError, match=r"proxy .*HTTPS_PROXY .*http://host:port"):
        post(HOOK, {}, "1", "", 1)
