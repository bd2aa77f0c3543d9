"""Connections over which frames are sent: TCP, UDP or ZeroMQ. Sending waits for no receiver."""

import socket
import time
from typing import Protocol

import numpy as np

from schemas.frame import LENGTH, MAX_DATAGRAM_BYTES, ZEROMQ_USER
from services.generator.frame_batch import Frames
from services.generator.librdkafka import ClientError
from services.runtime.datagrams import Datagrams

POLL_S = 0.1
RECONNECT_S = 0.2
CONNECT_S = 5.0
AT_ONCE = 200  # frames between two clock readings
REST_BYTES = 256 * 1024
PACKS = 16  # messages of frames that libzmq queues
# Of a message of several frames: receivers refuse one above MAX_FRAME_BYTES.
PACK_BYTES = 256 * 1024
ENDS, END_EVERY_S = 5, 0.02


class Link(Protocol):
    """Sends frames. last_error: empty if there was none."""

    last_error: str

    def send(self, frame: bytes | memoryview) -> bool:
        """Send one frame; returns whether it was accepted."""

    def send_all(self, frames: Frames) -> int:
        """Send several frames, with few system calls where that can be; returns how many were
        accepted."""
        for number in range(len(frames)):
            if not self.send(frames.frame(number)):
                return number
        return len(frames)

    def flush(self) -> bool:
        """Send the rest of an accepted frame; returns whether nothing is left."""
        return True

    def send_last(self, frame: bytes) -> None:
        """Send the frame that says how many there were."""
        self.send(frame)
        self.flush()

    def close(self) -> None:
        """Close the connection."""


class TcpLink(Link):
    """A connection that is reopened when it breaks; frames in flight are lost. greeting: the first
    frame of each connection. is_later: the peer opens its port later, so it is not waited for."""

    def __init__(
        self, address: tuple[str, int], greeting: bytes, *, is_later: bool = False
    ) -> None:
        self.last_error = ""
        self._address = address
        self._greeting = LENGTH.pack(len(greeting)) + greeting
        self._rest = bytearray()
        self._retry_s = 0.0
        self._socket: socket.socket | None = None
        until_s = time.monotonic() + CONNECT_S  # the gateway opens its port on the same command
        while self._socket is None and not is_later:
            try:
                self._connect()
            except OSError as error:
                if time.monotonic() > until_s:
                    place = f"{address[0]}:{address[1]}"
                    raise ClientError(f"no gateway answers at {place}: {error}") from error
                time.sleep(POLL_S)

    def _connect(self) -> None:
        connected = socket.create_connection(self._address, timeout=CONNECT_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.sendall(self._greeting)
        connected.setblocking(False)
        self._socket = connected

    def send(self, frame: bytes | memoryview) -> bool:
        """See Link. Buffers up to REST_BYTES that the socket does not accept."""
        if len(self._rest) > REST_BYTES and not self.flush():
            return False
        self._rest += LENGTH.pack(len(frame))
        self._rest += frame
        return True

    def send_all(self, frames: Frames) -> int:
        """See Link. All or none are accepted."""
        if len(self._rest) > REST_BYTES and not self.flush():
            return 0
        self._rest += frames.data[: int(frames.ends[-1])]
        self.flush()
        return len(frames)

    def flush(self) -> bool:
        try:
            if self._socket is None:
                if time.monotonic() < self._retry_s:
                    return False
                self._connect()
            while self._rest and self._socket is not None:
                taken = self._socket.send(self._rest)
                del self._rest[:taken]
        except BlockingIOError:
            return False
        except OSError as error:
            self._broken(error)
            return False
        return True

    def _broken(self, error: OSError) -> None:
        self.last_error = f"the connection was lost: {error}"
        self._retry_s = time.monotonic() + RECONNECT_S
        self._rest.clear()  # it may start in the middle of a frame
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


class UdpLink(Link):
    """One datagram per frame."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.last_error = ""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.connect(address)
        self._datagrams = Datagrams(self._socket)

    def send(self, frame: bytes | memoryview) -> bool:
        if len(frame) > MAX_DATAGRAM_BYTES:
            raise ClientError(f"a record of {len(frame)} bytes does not fit into a datagram")
        try:
            self._socket.send(frame)
        except BlockingIOError:
            return False
        except OSError as error:  # nobody listens: reported by the response to an earlier datagram
            self.last_error = f"a datagram was refused: {error}"
        return True

    def send_all(self, frames: Frames) -> int:
        """See Link. A datagram that is refused counts as accepted, as one that is lost does."""
        begins, ends = frames.ends[:-1] + np.int64(LENGTH.size), frames.ends[1:].astype(np.int64)
        largest = int((ends - begins).max())
        if largest > MAX_DATAGRAM_BYTES:
            raise ClientError(f"a record of {largest} bytes does not fit into a datagram")
        at = 0
        while at < len(frames):
            try:
                accepted = self._datagrams.send(frames.data, begins[at:], ends[at:])
            except OSError as error:
                self.last_error = f"a datagram was refused: {error}"
                accepted = 1
            if not accepted:
                break
            at += accepted
        return at

    def send_last(self, frame: bytes) -> None:
        """See Link. It is repeated, because datagrams may be lost."""
        for _ in range(ENDS):
            self.send(frame)
            time.sleep(END_EVERY_S)

    def close(self) -> None:
        self._socket.close()


class ZeromqLink(Link):
    """A PUSH socket. libzmq queues messages up to its high-water mark, and reconnects. tag: of the
    run, the password; None for a peer that asks for none. is_later: as for TCP. are_packed: frames
    that are sent together are one message, each after its length."""

    def __init__(
        self,
        address: tuple[str, int],
        tag: bytes | None,
        *,
        is_later: bool = False,
        are_packed: bool = False,
    ) -> None:
        import zmq

        self.last_error = ""
        self._are_packed = are_packed
        self._again, self._no_wait = zmq.Again, zmq.NOBLOCK
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        self._socket.setsockopt(zmq.SNDHWM, PACKS if are_packed else AT_ONCE)
        self._socket.setsockopt(zmq.LINGER, int(1000 * CONNECT_S))
        self._socket.setsockopt(zmq.IMMEDIATE, 1)  # do not queue messages for a disconnected peer
        if tag is not None:
            self._socket.setsockopt_string(zmq.PLAIN_USERNAME, ZEROMQ_USER)
            self._socket.setsockopt_string(zmq.PLAIN_PASSWORD, tag.hex())
        self._socket.connect(f"tcp://{address[0]}:{address[1]}")
        if is_later:
            return
        if not self._socket.poll(int(1000 * CONNECT_S), zmq.POLLOUT):
            self.close()
            raise ClientError(f"no gateway answers at {address[0]}:{address[1]}")

    def send(self, frame: bytes | memoryview) -> bool:
        return self._send(LENGTH.pack(len(frame)) + frame if self._are_packed else frame)

    def send_all(self, frames: Frames) -> int:
        """See Link. Those of a message are accepted together if they are packed."""
        if not self._are_packed:
            return super().send_all(frames)
        sent = 0
        while sent < len(frames):
            begin = int(frames.ends[sent])
            within = int(np.searchsorted(frames.ends, begin + PACK_BYTES, side="right")) - 1
            until = max(within, sent + 1)
            if not self._send(frames.data[begin : int(frames.ends[until])]):
                break
            sent = until
        return sent

    def _send(self, message: bytes | memoryview) -> bool:
        try:
            self._socket.send(message, self._no_wait)
        except self._again:
            return False
        return True

    def close(self) -> None:
        self._socket.close()
        self._context.term()


def open_link(transport: str, address: tuple[str, int], greeting: bytes, tag: bytes) -> Link:
    """The link of a transport to the gateway. greeting: first frame of a connection; tag: of the
    run. Raises ClientError if no gateway responds."""
    if transport == "tcp":
        return TcpLink(address, greeting)
    if transport == "zeromq":
        return ZeromqLink(address, tag)
    try:
        return UdpLink(address)
    except OSError as error:  # for example an unknown host name
        raise ClientError(f"no gateway answers at {address[0]}:{address[1]}: {error}") from error


def open_system_link(transport: str, address: tuple[str, int], greeting: bytes) -> Link:
    """The link to a system that opens its port later, and asks for no login."""
    if transport == "tcp":
        return TcpLink(address, greeting, is_later=True)
    if transport == "zeromq":
        return ZeromqLink(address, None, is_later=True, are_packed=True)
    return UdpLink(address)
