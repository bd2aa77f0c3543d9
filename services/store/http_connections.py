"""Tracks connections: what each of them waits for, and whether its client has disconnected.

Every connection has a thread, so their number is bounded. Slow clients must not keep others out: at
the limit, a new connection replaces the one that has kept the store waiting for the longest time. A
connection with a running query is not replaced. If its client disconnects, the query is cancelled.
Clients without a password run queries on at most half of the connections, so that they leave some
to the console.
"""

import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from services.runtime.health import SleepingServer
from services.store.engine import EngineError
from services.store.http_patience import turn_away

CONNECTIONS: Final = 64
MAKE_ROOM_S: Final = 1.0
LOOK_S: Final = 0.25
# The client has closed or stopped sending. Systems without this event only report a close once
# everything sent before it has been read.
_GONE: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR | select.POLLNVAL


class Connections:
    """At most `most` connections. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._waiting_since_s: dict[socket.socket, float | None] = {}
        self._anonymous = threading.BoundedSemaphore(max(1, most // 2))

    def enter(self, connection: socket.socket) -> bool:
        """Add a connection; False if all existing ones are running a query."""
        with self._changed:
            if len(self._waiting_since_s) >= self._most and not self._make_room():
                return False
            self._waiting_since_s[connection] = time.monotonic()
            return True

    def leave(self, connection: socket.socket) -> None:
        """Remove a closed connection."""
        with self._changed:
            self._waiting_since_s.pop(connection, None)
            self._changed.notify_all()

    @contextmanager
    def kept(self, connection: socket.socket, is_known: bool) -> Iterator[None]:
        """While the block runs, the client waits for the store. is_known: whether it has given a
        password. Raises EngineError if too many clients without one are waiting."""
        if not (is_known or self._anonymous.acquire(blocking=False)):
            raise EngineError("Code: 202. DB::Exception: Too many simultaneous queries.")
        self._set(connection, None)
        try:
            yield
        finally:
            self._set(connection, time.monotonic())
            if not is_known:
                self._anonymous.release()

    def waits(self, connection: socket.socket) -> None:
        """From now on the store waits for the client."""
        self._set(connection, time.monotonic())

    def _set(self, connection: socket.socket, since_s: float | None) -> None:
        with self._changed:
            if connection in self._waiting_since_s:
                self._waiting_since_s[connection] = since_s

    def _make_room(self) -> bool:
        waiting = [(s, each) for each, s in self._waiting_since_s.items() if s is not None]
        if not waiting:
            return False
        _since, oldest = min(waiting, key=lambda found: found[0])
        self._waiting_since_s[oldest] = None
        with suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)  # wakes its thread, which then ends
        return self._changed.wait_for(lambda: len(self._waiting_since_s) < self._most, MAKE_ROOM_S)


class Departures:
    """Calls a callback when a client disconnects, repeatedly until the block ends.

    One thread polls all connections a few times a second, while there are any. A client that has
    only shut down its sending side looks the same, so its query may run from one poll to the next.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: dict[socket.socket, Callable[[], None]] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, connection: socket.socket, gone: Callable[[], None]) -> Iterator[None]:
        """While the block runs, call `gone` once the client has disconnected. `gone` must not
        raise."""
        with self._changed:
            self._watched[connection] = gone
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="departures", daemon=True)
                self._thread.start()
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                del self._watched[connection]

    def _look(self) -> None:
        before: set[Callable[[], None]] = set()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._watched)
            time.sleep(LOOK_S)
            with self._changed:
                watched = list(self._watched.items())
            left = {gone for connection, gone in watched if has_gone(connection)}
            for gone in left & before:
                gone()
            before = left


def has_gone(connection: socket.socket) -> bool:
    """Whether a client has closed its side, even if sent data has not been read yet."""
    poll = select.poll()
    try:
        poll.register(connection, _GONE)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True


class Responses:
    """Bounds the bytes of the responses that clients without a password are receiving. Thread-safe.

    A slow client holds its response in memory, but no slot.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._lock = threading.Lock()

    @contextmanager
    def held(self, size: int) -> Iterator[None]:
        """While the block runs, a response of this size is being sent. Raises EngineError if there
        are too many."""
        with self._lock:
            if size > self._left:
                raise EngineError("Code: 202. DB::Exception: Too many responses are being sent.")
            self._left -= size
        try:
            yield
        finally:
            with self._lock:
                self._left += size


class ConnectionServer(SleepingServer):
    """A server with a thread per connection and at most CONNECTIONS connections."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.connections = Connections(CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.connections.enter(request):
            super().process_request(request, client_address)
        else:
            turn_away(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore client disconnects; log everything else as a defect."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
