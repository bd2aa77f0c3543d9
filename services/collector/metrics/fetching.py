"""Fetches one page over HTTP, bounded in time and size. Does not follow redirects."""

import http.client
import io
import socket
import time
from contextlib import closing
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from services.collector.metrics.samples import NoAnswerError

HEADERS: Final = {"Accept": "text/plain;version=0.0.4", "Connection": "close"}


def fetch(url: str, timeout_s: float, max_bytes: int) -> bytes:
    """The body of a page. Raises NoAnswerError: no connection within `timeout_s`, no complete
    response within the same time again, a status other than 200, or more than `max_bytes`."""
    connection = _connection(url, timeout_s)
    try:
        connection.connect()
        with closing(connection.sock) as connected:
            connection.sock = _Hurried(connected, time.monotonic() + timeout_s)
            connection.request("GET", _path(url), headers=HEADERS)
            response = connection.getresponse()
            if response.status != HTTPStatus.OK:
                raise NoAnswerError(f"it answered {response.status}")
            body = response.read(max_bytes + 1)
    except TimeoutError as error:
        raise NoAnswerError(f"it did not answer within {timeout_s:g} s") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswerError(f"it does not answer: {error or type(error).__name__}") from error
    if len(body) > max_bytes:
        raise NoAnswerError(f"its answer has more than {max_bytes} bytes")
    return body


def _connection(url: str, timeout_s: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=timeout_s)


def _path(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


class _Hurried:
    """A connected socket with one deadline for all sends and receives: a socket's own timeout
    restarts with every byte. Implements what http.client uses of a socket."""

    def __init__(self, connected: socket.socket, deadline_s: float) -> None:
        self._socket = connected
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
