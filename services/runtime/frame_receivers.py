"""Receivers of frames: TCP, UDP or ZeroMQ on one port, each with bounded memory per client.

`receive_all` yields what each system call returned, with the time read after it in nanoseconds,
since the epoch unless another clock is given, and a Refusal in place of data that is not a frame.
`receive` yields each frame by itself.
"""

import logging
import os
import select
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from schemas.frame import LENGTH, MARKER, MAX_FRAME_BYTES, ZEROMQ_USER
from services.runtime.datagrams import Datagrams
from services.runtime.frame_batches import ReceivedFrames

# A connection whose frame is still incomplete after this time is closed.
PATIENCE_S = 10.0
# Length of the accept backlog. Clients beyond it retry after a second.
BACKLOG = 128
READ_BYTES = 256 * 1024
RECEIVE_BUFFER_BYTES = 8 * 1024 * 1024
AT_ONCE = 1_000  # messages handled before other events are checked
READS = 16  # system calls that read datagrams, before the same
KEPT_BYTES = 4_096  # bytes kept of data that is not a frame
ZEROMQ_FRAMES = 16  # receive buffer of libzmq per connection; further frames wait in the socket
UNHEARD = logging.Logger("logins", logging.CRITICAL + 1)  # strangers must not fill the log
# Address of libzmq's socket monitor, and its message: event number and file descriptor.
TOLD, EVENT = "inproc://told", struct.Struct("=Hi")


@dataclass(frozen=True)
class ConnectionLimits:
    """connections: open at the same time. greeting_s: a connection without a frame of the run for
    this time may be evicted by a new one."""

    connections: int = 64
    greeting_s: float = 1.0


LIMITS = ConnectionLimits()


@dataclass(frozen=True)
class Refusal:
    """Data that is not a frame: its first bytes and the reason, and when it was refused."""

    data: bytes
    reason: str
    received_ns: int = 0


Arrival = tuple[bytes | Refusal, int]


class Receiver(Protocol):
    """Reads frames from the network. turned_away: connections that were rejected or evicted."""

    turned_away: int

    def receive_all(self, timeout_s: float) -> Iterator[ReceivedFrames | Refusal]:
        """The frames that have arrived; waits up to `timeout_s` for the first."""

    def receive(self, timeout_s: float) -> Iterator[Arrival]:
        """The same, each frame by itself."""
        for some in self.receive_all(timeout_s):
            if isinstance(some, Refusal):
                yield some, some.received_ns
                continue
            for frame in some:
                yield frame, some.received_ns

    def keep_bounds(self) -> None:
        """Close excess connections while `receive` is not called."""

    def close(self) -> None:
        """Close the port."""


def open_receiver(
    transport: str,
    host: str,
    port: int,
    tag: bytes,
    clock_ns: Callable[[], int] = time.time_ns,
    *,
    are_packed: bool = False,
) -> Receiver:
    """The receiver of a transport. tag: prefix of the frames of the run; clock_ns: of the times of
    arrival; are_packed: messages of ZeroMQ have whole frames, each after its length. Raises OSError
    if the port is in use."""
    if transport == "tcp":
        return TcpReceiver(host, port, tag, clock_ns=clock_ns)
    if transport == "udp":
        return UdpReceiver(host, port, clock_ns)
    return ZeromqReceiver(host, port, tag, clock_ns=clock_ns, are_packed=are_packed)


@dataclass(eq=False)
class _Connection:
    """One client. since_s: when its last frame of the run arrived, or when it connected; begun_s:
    when its incomplete frame began; is_known: whether it has sent a frame of the run."""

    socket: socket.socket
    since_s: float
    begun_s: float = 0.0
    is_known: bool = False
    buffer: bytearray = field(default_factory=bytearray)


class TcpReceiver(Receiver):
    """Length-prefixed frames from a limited number of connections. Connections that have sent
    a frame of the run are kept; others can be evicted."""

    def __init__(
        self,
        host: str,
        port: int,
        tag: bytes,
        limits: ConnectionLimits = LIMITS,
        clock_s: Callable[[], float] = time.monotonic,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._clock_ns = clock_ns
        self._limits = limits
        self._clock_s = clock_s
        self.turned_away = 0
        self._ours = MARKER + tag
        self._connections: set[_Connection] = set()
        self._server = socket.create_server((host, port), backlog=BACKLOG)
        self._server.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)

    def receive_all(self, timeout_s: float) -> Iterator[ReceivedFrames | Refusal]:
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                self._accept_waiting()
            elif key.data in self._connections:  # it may have been evicted in this loop
                yield from self._read(key.data)
        limit_s = self._clock_s() - PATIENCE_S
        for item in [each for each in self._connections if each.buffer and each.begun_s < limit_s]:
            yield self._refused(item, "the frame was not completed in time")

    def keep_bounds(self) -> None:
        """See Receiver. Excess connections wait in the backlog until `receive` accepts them."""

    def _accept_waiting(self) -> None:
        for _ in range(BACKLOG):
            try:
                client, _ = self._server.accept()
            except BlockingIOError:
                return
            except OSError:  # already disconnected
                continue
            self._admit(client)

    def _admit(self, client: socket.socket) -> None:
        if len(self._connections) >= self._limits.connections:
            self.turned_away += 1
            strangers = (each for each in self._connections if not each.is_known)
            oldest = min(strangers, key=lambda each: each.since_s, default=None)
            if oldest is None or oldest.since_s > self._clock_s() - self._limits.greeting_s:
                client.close()
                return
            self._drop(oldest)
        client.setblocking(False)
        connection = _Connection(client, self._clock_s())
        self._connections.add(connection)
        self._selector.register(client, selectors.EVENT_READ, connection)

    def _read(self, connection: _Connection) -> Iterator[ReceivedFrames | Refusal]:
        try:
            data = connection.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if connection.buffer:
                yield self._refused(connection, "the connection closed within a frame")
            else:
                self._drop(connection)
            return
        received_ns = self._clock_ns()
        was_empty = not connection.buffer
        if not was_empty:
            data = bytes(connection.buffer) + data
        frames = ReceivedFrames.of_stream(data, received_ns)
        connection.buffer[:] = data[frames.rest :]
        if frames:
            if not connection.is_known:
                connection.is_known = any(frame.startswith(self._ours) for frame in frames)
            yield frames
        if frames.oversized:
            length = frames.oversized
            yield self._refused(connection, f"a frame of {length} bytes exceeds the limit")
            return
        if frames and connection.is_known:
            connection.since_s = self._clock_s()
        if frames or was_empty:
            connection.begun_s = self._clock_s()

    def _refused(self, connection: _Connection, reason: str) -> Refusal:
        data = bytes(connection.buffer[:KEPT_BYTES])
        self._drop(connection)
        return Refusal(data, reason, self._clock_ns())

    def _drop(self, connection: _Connection) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()
        self._connections.discard(connection)

    def close(self) -> None:
        for connection in list(self._connections):
            self._drop(connection)
        self._selector.close()
        self._server.close()


class UdpReceiver(Receiver):
    """A datagram is a frame. Datagrams are lost while the socket buffer is full."""

    def __init__(self, host: str, port: int, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._clock_ns = clock_ns
        self.turned_away = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self._socket.bind((host, port))
        self._datagrams = Datagrams(self._socket)

    def receive_all(self, timeout_s: float) -> Iterator[ReceivedFrames | Refusal]:
        if not select.select([self._socket], [], [], timeout_s)[0]:
            return
        for _ in range(READS):
            messages = self._datagrams.receive()
            if not messages:
                return
            yield ReceivedFrames.of_messages(messages, self._clock_ns())

    def keep_bounds(self) -> None:
        """See Receiver. UDP has no connections."""

    def close(self) -> None:
        self._socket.close()


class ZeromqReceiver(Receiver):
    """A message of a PULL socket is a frame, or several if they are packed. libzmq accepts any
    number of connections, so those beyond the limit are shut down when the socket monitor reports
    them. Clients log in: one that does not could fill the memory with parts of a message that
    never ends."""

    def __init__(
        self,
        host: str,
        port: int,
        tag: bytes,
        limits: ConnectionLimits = LIMITS,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        are_packed: bool = False,
    ) -> None:
        self._clock_ns = clock_ns
        self._are_packed = are_packed
        self._limits = limits
        import zmq
        from zmq.auth.thread import ThreadAuthenticator

        self.turned_away = 0
        self._port = port
        self._open: set[int] = set()
        self._accepted = zmq.EVENT_ACCEPTED
        self._again: type[Exception] = zmq.Again
        self._no_wait = zmq.NOBLOCK
        self._context = zmq.Context()
        self._logins = ThreadAuthenticator(self._context, log=UNHEARD)
        self._logins.start()
        self._logins.configure_plain(passwords={ZEROMQ_USER: tag.hex()})
        self._socket = self._context.socket(zmq.PULL)
        self._socket.setsockopt(zmq.PLAIN_SERVER, 1)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES + are_packed * LENGTH.size)
        self._socket.setsockopt(zmq.RCVHWM, ZEROMQ_FRAMES)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, int(1000 * PATIENCE_S))
        self._socket.monitor(TOLD, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._told = self._context.socket(zmq.PAIR)
        self._told.setsockopt(zmq.RCVHWM, 0)  # else libzmq blocks when many events are queued
        self._told.connect(TOLD)
        try:
            self._socket.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            self.close()
            raise OSError(str(error)) from error

    def receive_all(self, timeout_s: float) -> Iterator[ReceivedFrames | Refusal]:
        self.keep_bounds()
        if not self._socket.poll(int(1000 * timeout_s)):
            return
        receive, again, no_wait = self._socket.recv, self._again, self._no_wait
        for _ in range(AT_ONCE):
            try:
                data: bytes = receive(no_wait)
            except again:
                return
            received_ns = self._clock_ns()
            if not self._are_packed:
                yield ReceivedFrames(data, [len(data)], received_ns)
                continue
            frames = ReceivedFrames.of_stream(data, received_ns)
            if frames:
                yield frames
            if frames.rest != len(data):
                reason = "the message does not end with a frame"
                yield Refusal(data[frames.rest :][:KEPT_BYTES], reason, received_ns)

    def keep_bounds(self) -> None:
        for _ in range(AT_ONCE):
            try:
                event, _address = self._told.recv_multipart(self._no_wait)
            except self._again:
                return
            number, file = EVENT.unpack(event)
            if number != self._accepted:
                self._open.discard(file)
            elif len(self._open) < self._limits.connections:
                self._open.add(file)
            else:
                self.turned_away += 1
                self._shut_down(file)

    def _shut_down(self, file: int) -> None:
        """Shut the socket down; libzmq then closes it. It may have closed it already and the
        descriptor may have been reused."""
        with suppress(OSError), socket.socket(fileno=os.dup(file)) as result:
            if result.getsockname()[1] == self._port:
                result.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.disable_monitor()
        self._told.close(0)
        self._socket.close()
        self._logins.stop()
        self._context.term()
