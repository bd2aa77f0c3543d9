"""Where frames come in: TCP, UDP or ZeroMQ, one port. Each bounds what strangers can make it hold.

`receive` gives whole frames with the time at which they were read, nanoseconds since the epoch; or,
where what came is none, a Refusal.
"""

import os
import selectors
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from schemas.frame import LENGTH, MARKER, MAX_FRAME_BYTES

MAX_CONNECTIONS = 64
# A frame that has not come to its end after so long ends its connection.
PATIENCE_S = 10.0
# A connection without a frame of the run for so long gives way when another one finds no room.
GREETING_S = 1.0
# Connections that may wait to be accepted. Clients beyond them try again after a second.
BACKLOG = 128
READ_BYTES = 256 * 1024
RECEIVE_BUFFER_BYTES = 8 * 1024 * 1024
AT_ONCE = 1_000  # frames between two looks at anything else
KEPT_BYTES = 4_096  # of what is no frame
ZEROMQ_FRAMES = 16  # that libzmq holds of a connection; what comes then waits in its socket
# Where libzmq tells of connections: the number of an event, and that of a file.
TOLD, EVENT = "inproc://told", struct.Struct("=Hi")


@dataclass(frozen=True)
class Refusal:
    """What came and was no frame: its begin, and why."""

    data: bytes
    reason: str


Arrival = tuple[bytes | Refusal, int]


class Receiver(Protocol):
    """Reads frames from the network. turned_away: connections that found no room or gave way."""

    turned_away: int

    def receive(self, timeout_s: float) -> Iterator[Arrival]:
        """What has come, waiting up to so long for the first."""

    def keep_bounds(self) -> None:
        """Shut down connections that are too many, where nothing is received for a while."""

    def close(self) -> None:
        """Close the port."""


def open_receiver(transport: str, host: str, port: int, tag: bytes = b"") -> Receiver:
    """The receiver of a transport. tag: of the frames of the run. Raises OSError when the port is
    taken."""
    if transport == "tcp":
        return TcpReceiver(host, port, tag)
    return UdpReceiver(host, port) if transport == "udp" else ZeromqReceiver(host, port)


@dataclass(eq=False)
class _Connection:
    """One client. since_s: when its last frame of the run came, or it itself; begun_s: when the
    frame began that is not whole yet; is_known: whether it has sent a frame of the run."""

    socket: socket.socket
    since_s: float
    begun_s: float = 0.0
    is_known: bool = False
    buffer: bytearray = field(default_factory=bytearray)


class TcpReceiver:
    """Frames with their length before them, from at most MAX_CONNECTIONS connections. Those that
    have sent a frame of the run keep their place; strangers give way."""

    def __init__(self, host: str, port: int, tag: bytes = b"") -> None:
        self.turned_away = 0
        self._ours = MARKER + tag
        self._connections: set[_Connection] = set()
        self._server = socket.create_server((host, port), backlog=BACKLOG)
        self._server.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)

    def receive(self, timeout_s: float) -> Iterator[Arrival]:
        """See Receiver."""
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                self._accept_waiting()
            elif key.data in self._connections:  # it may have just given way
                yield from self._read(key.data)
        limit_s = time.monotonic() - PATIENCE_S
        for one in [each for each in self._connections if each.buffer and each.begun_s < limit_s]:
            yield self._refused(one, "the frame did not come to its end in time")

    def keep_bounds(self) -> None:
        """See Receiver. Others wait in the backlog until `receive` accepts them."""

    def _accept_waiting(self) -> None:
        for _ in range(BACKLOG):
            try:
                client, _ = self._server.accept()
            except BlockingIOError:
                return
            except OSError:  # it has gone again
                continue
            self._admit(client)

    def _admit(self, client: socket.socket) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            self.turned_away += 1
            strangers = (one for one in self._connections if not one.is_known)
            oldest = min(strangers, key=lambda one: one.since_s, default=None)
            if oldest is None or oldest.since_s > time.monotonic() - GREETING_S:
                client.close()
                return
            self._drop(oldest)
        client.setblocking(False)
        connection = _Connection(client, time.monotonic())
        self._connections.add(connection)
        self._selector.register(client, selectors.EVENT_READ, connection)

    def _read(self, one: _Connection) -> Iterator[Arrival]:
        try:
            data = one.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if one.buffer:
                yield self._refused(one, "the connection ended within a frame")
            else:
                self._drop(one)
            return
        received_ns = time.time_ns()
        was_empty, at = not one.buffer, 0
        one.buffer += data
        while len(one.buffer) - at >= LENGTH.size:
            (length,) = LENGTH.unpack_from(one.buffer, at)
            if length > MAX_FRAME_BYTES:
                yield self._refused(one, f"a frame of {length} bytes is announced")
                return
            begin, end = at + LENGTH.size, at + LENGTH.size + length
            if end > len(one.buffer):
                break
            frame = bytes(one.buffer[begin:end])
            if frame.startswith(self._ours):
                one.since_s, one.is_known = time.monotonic(), True
            yield frame, received_ns
            at = end
        del one.buffer[:at]
        if at or was_empty:
            one.begun_s = time.monotonic()

    def _refused(self, one: _Connection, reason: str) -> Arrival:
        data = bytes(one.buffer[:KEPT_BYTES])
        self._drop(one)
        return Refusal(data, reason), time.time_ns()

    def _drop(self, one: _Connection) -> None:
        self._selector.unregister(one.socket)
        one.socket.close()
        self._connections.discard(one)

    def close(self) -> None:
        """See Receiver."""
        for one in list(self._connections):
            self._drop(one)
        self._selector.close()
        self._server.close()


class UdpReceiver:
    """A datagram is a frame. What comes while nobody reads and the buffer is full, is lost."""

    def __init__(self, host: str, port: int) -> None:
        self.turned_away = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self._socket.bind((host, port))

    def receive(self, timeout_s: float) -> Iterator[Arrival]:
        """See Receiver."""
        self._socket.settimeout(timeout_s)
        for _ in range(AT_ONCE):
            try:
                data = self._socket.recv(65_536)
            except OSError:  # nothing more is there
                return
            yield data, time.time_ns()
            self._socket.settimeout(0)

    def keep_bounds(self) -> None:
        """See Receiver. There are no connections."""

    def close(self) -> None:
        """See Receiver."""
        self._socket.close()


class ZeromqReceiver:
    """A message of a PULL socket is a frame. libzmq keeps connections, and knows no limit to them:
    those beyond MAX_CONNECTIONS are shut down as soon as it tells of them."""

    def __init__(self, host: str, port: int) -> None:
        import zmq

        self.turned_away = 0
        self._port = port
        self._open: set[int] = set()
        self._accepted = zmq.EVENT_ACCEPTED
        self._again: type[Exception] = zmq.Again
        self._no_wait = zmq.NOBLOCK
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PULL)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        self._socket.setsockopt(zmq.RCVHWM, ZEROMQ_FRAMES)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, int(1000 * PATIENCE_S))
        self._socket.monitor(TOLD, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._told = self._context.socket(zmq.PAIR)
        self._told.setsockopt(zmq.RCVHWM, 0)  # else libzmq waits for us when there is much to tell
        self._told.connect(TOLD)
        try:
            self._socket.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            self.close()
            raise OSError(str(error)) from error

    def receive(self, timeout_s: float) -> Iterator[Arrival]:
        """See Receiver."""
        self.keep_bounds()
        if not self._socket.poll(int(1000 * timeout_s)):
            return
        for _ in range(AT_ONCE):
            try:
                data: bytes = self._socket.recv(self._no_wait)
            except self._again:
                return
            yield data, time.time_ns()

    def keep_bounds(self) -> None:
        """See Receiver."""
        for _ in range(AT_ONCE):
            try:
                event, _address = self._told.recv_multipart(self._no_wait)
            except self._again:
                return
            number, file = EVENT.unpack(event)
            if number != self._accepted:
                self._open.discard(file)
            elif len(self._open) < MAX_CONNECTIONS:
                self._open.add(file)
            else:
                self.turned_away += 1
                self._shut_down(file)

    def _shut_down(self, file: int) -> None:
        """libzmq closes it then. It may have done so already, and the number may be another's."""
        with suppress(OSError), socket.socket(fileno=os.dup(file)) as found:
            if found.getsockname()[1] == self._port:
                found.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """See Receiver."""
        self._socket.disable_monitor()
        self._told.close(0)
        self._socket.close()
        self._context.term()
