"""Many datagrams with one system call, where the system has recvmmsg and sendmmsg (Linux); else
one by one."""

import ctypes
import errno
import os
import socket

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 256  # datagrams that one call receives
MOST_BYTES = 65_536  # of a datagram
DONT_WAIT = socket.MSG_DONTWAIT
# `struct iovec` and `struct mmsghdr` of Linux on 64-bit machines.
_PART = np.dtype([("address", "<u8"), ("size", "<u8")])
_MESSAGE = np.dtype(
    {
        "names": ["parts", "part_count", "size"],
        "formats": ["<u8", "<u8", "<u4"],
        "offsets": [16, 24, 56],
        "itemsize": 64,
    }
)


def _library() -> ctypes.CDLL | None:
    """The C library, if it has both functions as declared here."""
    library = ctypes.CDLL(None, use_errno=True)
    has_both = hasattr(library, "recvmmsg") and hasattr(library, "sendmmsg")
    return library if has_both and ctypes.sizeof(ctypes.c_void_p) == 8 else None


class Datagrams:
    """Sends and receives on a socket that is bound or connected, and never waits. is_batched: False
    for one by one."""

    def __init__(self, of: socket.socket, *, is_batched: bool = True) -> None:
        self._socket = of
        self._library = _library() if is_batched else None
        self._room = memoryview(bytearray())
        self._messages = np.zeros(0, _MESSAGE)
        self._parts = np.zeros(0, _PART)

    def receive(self) -> list[bytes]:
        """The next datagrams, at most AT_ONCE; none if no more have arrived. Raises OSError for an
        error of the socket."""
        if self._library is None:
            try:
                return [self._socket.recv(MOST_BYTES, DONT_WAIT)]
            except BlockingIOError:
                return []
        if not len(self._room):
            self._make_room()
        count = self._library.recvmmsg(
            self._socket.fileno(), self._pointer, AT_ONCE, DONT_WAIT, None
        )
        if count < 0:
            number = ctypes.get_errno()
            if number in (errno.EAGAIN, errno.EINTR):
                return []
            raise OSError(number, os.strerror(number))
        room, sizes = self._room, self._messages["size"][:count].tolist()
        begins = range(0, count * MOST_BYTES, MOST_BYTES)
        return [bytes(room[at : at + size]) for at, size in zip(begins, sizes, strict=True)]

    def _make_room(self) -> None:
        """Memory for the datagrams of a call; only pages that are written take any."""
        room = np.empty(AT_ONCE * MOST_BYTES, np.uint8)
        self._room = room.data
        self._parts = np.zeros(AT_ONCE, _PART)
        self._parts["address"] = room.ctypes.data + MOST_BYTES * np.arange(AT_ONCE)
        self._parts["size"] = MOST_BYTES
        self._messages = _messages_of(self._parts)
        self._pointer = ctypes.c_void_p(self._messages.ctypes.data)

    def send(self, data: memoryview, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> int:
        """Send datagrams, from begins[i] to ends[i] of the data; the number that the system took.
        Raises OSError if it took none for another reason than a full buffer."""
        if self._library is None:
            return self._send_singly(data, begins, ends)
        start = np.frombuffer(data, np.uint8).ctypes.data
        parts = np.zeros(len(begins), _PART)
        parts["address"], parts["size"] = start + begins, ends - begins
        messages = _messages_of(parts)
        pointer = ctypes.c_void_p(messages.ctypes.data)
        count = self._library.sendmmsg(self._socket.fileno(), pointer, len(parts), DONT_WAIT)
        if count >= 0:
            return int(count)
        number = ctypes.get_errno()
        if number in (errno.EAGAIN, errno.EINTR):
            return 0
        raise OSError(number, os.strerror(number))

    def _send_singly(
        self, data: memoryview, begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> int:
        for number, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            try:
                self._socket.send(data[begin:end], DONT_WAIT)
            except BlockingIOError:
                return number
            except OSError:
                if number:
                    return number
                raise
        return len(begins)


def _messages_of(parts: NDArray[np.void]) -> NDArray[np.void]:
    """Message headers with one part each, which must be kept alive."""
    messages = np.zeros(len(parts), _MESSAGE)
    messages["parts"] = parts.ctypes.data + _PART.itemsize * np.arange(len(parts))
    messages["part_count"] = 1
    return messages
