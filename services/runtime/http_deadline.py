"""HTTP connections with one deadline for everything that is sent and received: a socket's own
timeout restarts with every byte."""

import http.client
import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from services.runtime.proxies import Proxy


@contextmanager
def connected(
    url: str, timeout_s: float, proxy: Proxy | None = None
) -> Iterator[http.client.HTTPConnection]:
    """A connection to the host of a URL: directly, to the proxy, or for https through a tunnel of
    the proxy. Sending or receiving later than `timeout_s` from now raises TimeoutError. Resolving
    the name cannot be interrupted, and connecting to each of its addresses may take as long."""
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    kind = http.client.HTTPSConnection if is_tls else http.client.HTTPConnection
    host, port = (proxy.host, proxy.port) if proxy else (parts.hostname or "", parts.port)
    deadline_s = time.monotonic() + timeout_s
    with closing(kind(host, port, timeout=timeout_s)) as connection:
        if proxy and is_tls:
            connection.set_tunnel(parts.hostname or "", parts.port, proxy.headers)
        _connect(connection, deadline_s)
        with closing(connection.sock) as opened:
            connection.sock = _Hurried(opened, deadline_s)
            yield connection


def _connect(connection: http.client.HTTPConnection, deadline_s: float) -> None:
    """Connect. What a tunnel and TLS take counts, too: a proxy may answer byte by byte."""

    def end() -> None:
        if (opened := connection.sock) is not None:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, deadline_s - time.monotonic()), end)
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() >= deadline_s:
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()


def path_of(url: str) -> str:
    """Path and query of a URL."""
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


class _Hurried:
    """A connected socket with a deadline. Implements what http.client uses of a socket."""

    def __init__(self, opened: socket.socket, deadline_s: float) -> None:
        self._socket = opened
        self._deadline_s = deadline_s

    def sendall(self, data: bytes) -> None:
        self._hurry()
        self._socket.sendall(data)

    def makefile(self, *_mode: Any) -> io.BufferedReader:
        return io.BufferedReader(_Received(self))

    def receive_into(self, buffer: Any) -> int:
        self._hurry()
        return self._socket.recv_into(buffer)

    def close(self) -> None:
        """Do nothing: http.client calls it before the body is read; the opener closes the
        socket."""

    def _hurry(self) -> None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)


class _Received(io.RawIOBase):
    """The data received by the socket, as a file."""

    def __init__(self, hurried: _Hurried) -> None:
        super().__init__()
        self._hurried = hurried

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._hurried.receive_into(buffer)
