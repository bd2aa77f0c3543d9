"""HTTP connections with one deadline for everything that is sent and received: a socket's own
timeout restarts with every byte."""

import http.client
import io
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit


@contextmanager
def connected(url: str, timeout_s: float) -> Iterator[http.client.HTTPConnection]:
    """A connection to the host of a URL. Sending or receiving later than `timeout_s` from now
    raises TimeoutError. Resolving the name cannot be interrupted, and connecting to each of its
    addresses may take as long."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    deadline_s = time.monotonic() + timeout_s
    with closing(kind(parts.hostname or "", parts.port, timeout=timeout_s)) as connection:
        connection.connect()
        with closing(connection.sock) as opened:
            connection.sock = _Hurried(opened, deadline_s)
            yield connection


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
