"""Bytes that processes receive and send over their own TCP connections.

Linux counts them for each connection and tells them by netlink (sock_diag, without privileges);
/proc/PID/fd says whose a connection is. A library for netlink decodes every field of every
connection, once a second, for two of them.

What is not counted: what a connection carried between the last sample and its end, and a connection
that both began and ended between two samples; UDP and Unix sockets; and repeated segments. The
opening of a connection counts one byte for the process that opens it.
"""

import os
import socket
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NETLINK_SOCK_DIAG: Final = 4
DIAG_BY_FAMILY, DUMP = 20, 0x301  # message type; request for all
DONE, ERROR = 3, 2
TCP_INFO: Final = 2  # the attribute, and its number as an extension plus one
HAS_PEER: Final = sum(1 << state for state in (1, 2, 4, 5, 8, 9, 11))  # not listening, not closed
HEADER, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
REQUEST: Final = struct.Struct("=BBBBI48x")
INODE, INODE_AT, MESSAGE_BYTES = struct.Struct("=I"), 68, 72
ACKED_AND_RECEIVED, ACKED_AT = struct.Struct("=QQ"), 120  # in tcp_info, since Linux 4.1
ANSWER_BYTES: Final = 256 * 1024
ANSWER_S: Final = 1.0
MOST_CONNECTIONS, MOST_FILES = 65_536, 65_536  # of the machine; of a process


@dataclass(frozen=True)
class Traffic:
    """Bytes received, and sent and acknowledged, since a connection or a process began."""

    received: int = 0
    sent: int = 0


NO_TRAFFIC: Final = Traffic()


def read_connections() -> dict[int, Traffic] | None:
    """Traffic of the TCP connections of this network namespace by inode; at most MOST_CONNECTIONS.
    None if the system does not tell it."""
    result: dict[int, Traffic] = {}
    try:
        for family in (socket.AF_INET, socket.AF_INET6):
            kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
            with socket.socket(socket.AF_NETLINK, kind, NETLINK_SOCK_DIAG) as asked:
                asked.settimeout(ANSWER_S)
                wants = REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (TCP_INFO - 1), 0, HAS_PEER)
                size = HEADER.size + len(wants)
                asked.send(HEADER.pack(size, DIAG_BY_FAMILY, DUMP, 1, 0) + wants)
                goes_on = True
                while goes_on and len(result) < MOST_CONNECTIONS:
                    goes_on = _take(asked.recv(ANSWER_BYTES), result)
    except (OSError, AttributeError, struct.error):
        return None
    return result


def _take(answer: bytes, result: dict[int, Traffic]) -> bool:
    """Add the connections of an answer; whether more follow."""
    at = 0
    while at + HEADER.size <= len(answer):
        size, kind, _flags, _number, _port = HEADER.unpack_from(answer, at)
        if kind in (DONE, ERROR) or size < HEADER.size:
            return False
        begin, end = at + HEADER.size, min(at + size, len(answer))
        (inode,) = INODE.unpack_from(answer, begin + INODE_AT)
        if inode:  # 0: no process has it any more
            for number, value in _attributes(answer[begin + MESSAGE_BYTES : end]):
                if number == TCP_INFO and len(value) >= ACKED_AT + ACKED_AND_RECEIVED.size:
                    acked, received = ACKED_AND_RECEIVED.unpack_from(value, ACKED_AT)
                    result[inode] = Traffic(received, acked)
        at += _aligned(size)
    return True


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + ATTRIBUTE.size <= len(data):
        size, number = ATTRIBUTE.unpack_from(data, at)
        if size < ATTRIBUTE.size:
            return
        yield number, data[at + ATTRIBUTE.size : at + size]
        at += _aligned(size)


def _aligned(size: int) -> int:
    return (size + 3) & ~3


class ProcessTraffic:
    """Sums the traffic of processes over their connections, also those that have ended. read: the
    connections of the machine by inode."""

    def __init__(
        self,
        read: Callable[[], dict[int, Traffic] | None] = read_connections,
        proc: Path = Path("/proc"),
    ) -> None:
        self._read = read
        self._proc = str(proc)
        self._members: frozenset[int] = frozenset()
        self._owners: dict[int, int | None] = {}
        self._before: dict[int, Traffic] = {}
        self._totals: dict[int, Traffic] = {}

    def totals(self, pids: Collection[int]) -> dict[int, Traffic]:
        """Traffic of each of these processes since it was first asked for, with all that its
        connections of then had carried; empty if the system does not tell it."""
        members = frozenset(pids)
        now = self._read() if members else {}
        if now is None:
            return {}
        if members != self._members or now.keys() - self._owners.keys():
            self._owners = self._owners_of(now, members)
            self._members = members
        self._totals = {pid: self._totals.get(pid, NO_TRAFFIC) for pid in members}
        own = {inode: pid for inode in now if (pid := self._owners.get(inode)) is not None}
        for inode, pid in own.items():
            total, more = self._totals[pid], _growth(now[inode], self._before.get(inode))
            self._totals[pid] = Traffic(total.received + more.received, total.sent + more.sent)
        self._before = {inode: now[inode] for inode in own}
        return dict(self._totals)

    def _owners_of(self, inodes: Collection[int], pids: Collection[int]) -> dict[int, int | None]:
        """Which of the processes has each connection. One that several have, as after a fork, is
        that of the oldest."""
        result: dict[int, int | None] = dict.fromkeys(inodes)
        for pid in sorted(pids):
            for inode in self._sockets(pid):
                if inode in result and result[inode] is None:
                    result[inode] = pid
        return result

    def _sockets(self, pid: int) -> Iterator[int]:
        folder = f"{self._proc}/{pid}/fd"
        try:
            files = os.listdir(folder)[:MOST_FILES]
        except OSError:
            return  # it has ended, or is another user's
        for file in files:
            with suppress(OSError):
                kind, _, number = os.readlink(f"{folder}/{file}").partition(":[")
                if kind == "socket" and number[:-1].isdecimal():
                    yield int(number[:-1])


def _growth(now: Traffic, before: Traffic | None) -> Traffic:
    if before is None or now.received < before.received or now.sent < before.sent:
        return now  # a new connection, also one with the inode of an ended one
    return Traffic(now.received - before.received, now.sent - before.sent)
