"""How long a client may take over a request, and what one is told for whom there is no room.

A timeout of the socket's own begins again with every byte, so that a client which sends one now and
then would keep its connection for ever.
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
    """What a connection receives, as a file: one request after the other.

    A request has `request_s` seconds for all of it: the first from the beginning of the connection
    on, those after it from their first byte, for which there are `idle_s`. Reading raises
    TimeoutError when they are over. Between two reads the socket's own timeout is `idle_s`.
    """

    def __init__(self, connection: socket.socket, idle_s: float, request_s: float) -> None:
        super().__init__()
        self._connection = connection
        self._idle_s = idle_s
        self._request_s = request_s
        self._until_s: float | None = time.monotonic() + request_s

    def next_request(self) -> None:
        """The request before has been answered."""
        self._until_s = None

    def allow(self, seconds: float) -> None:
        """Let what follows of this request take so long from now on."""
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
    """Say that there are too many connections, and wait for nothing: nobody is let in meanwhile.
    The caller closes it."""
    with suppress(OSError):
        connection.setblocking(False)
        with suppress(BlockingIOError):
            connection.recv(READ_BYTES)  # what is not read takes the answer with it
        connection.send(ANSWER)


def linger(connection: socket.socket) -> None:
    """Say that nothing more comes, and take what is still coming for a moment: what is not read
    when a connection is closed takes the answer with it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(LINGER_S)
        until_s = time.monotonic() + LINGER_S
        while connection.recv(READ_BYTES) and time.monotonic() < until_s:
            pass
