"""Bounds the time a client may take for a request, and answers clients above the connection limit.

The socket's own timeout restarts with every byte, so a client that sends one byte at a time could
keep its connection forever.
"""

import io
import socket
import time
from contextlib import suppress
from typing import Any, Final

READ_BYTES: Final = 64 * 1024
LINGER_S: Final = 0.5
FULL: Final = b"Code: 202. DB::Exception: Too many connections; ask again in a moment.\n"
ANSWER: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=UTF-8\r\n"
    b"X-ClickHouse-Exception-Code: 202\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(FULL), FULL)
)


class Received(io.RawIOBase):
    """What a connection receives, as a file: one request after another.

    A request must arrive within `request_s` seconds. For the first request they count from the
    start of the connection, for later ones from their first byte, which must arrive within
    `idle_s`. Reading raises TimeoutError afterwards. Between two reads the socket's own timeout is
    `idle_s`.
    """

    def __init__(self, connection: socket.socket, idle_s: float, request_s: float) -> None:
        super().__init__()
        self._connection = connection
        self._idle_s = idle_s
        self._request_s = request_s
        self._until_s: float | None = time.monotonic() + request_s

    def next_request(self) -> None:
        """Call when the previous request has been answered."""
        self._until_s = None

    def allow(self, seconds: float) -> None:
        """Allow this many seconds, from now, for the rest of this request."""
        self._until_s = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._idle_s if self._until_s is None else self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(self._idle_s)
            if self._until_s is None:
                self.allow(self._request_s)


def turn_away(connection: socket.socket) -> None:
    """Answer that there are too many connections, without blocking, because no other connection is
    accepted meanwhile. The caller closes it."""
    with suppress(OSError):
        connection.setblocking(False)
        with suppress(BlockingIOError):
            connection.recv(READ_BYTES)  # unread data would discard the answer
        connection.send(ANSWER)


def linger(connection: socket.socket) -> None:
    """Close the sending side, and read for a moment: unread data at close would discard the
    answer."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(LINGER_S)
        until_s = time.monotonic() + LINGER_S
        while connection.recv(READ_BYTES) and time.monotonic() < until_s:
            pass
