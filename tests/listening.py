"""Sockets of processes that other machines could reach."""

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv6Address, ip_address

import psutil

LOOK_INTERVAL_S = 0.5


def tree(pid: int) -> list[psutil.Process]:
    """A process and its descendants."""
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    return []


def open_to_others(processes: Iterable[psutil.Process]) -> set[str]:
    """The sockets that accept connections or datagrams at an address other than loopback."""
    found = set()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            name = " ".join(process.cmdline()[-2:])
            for one in process.net_connections("inet"):
                is_server = one.status == psutil.CONN_LISTEN or (
                    one.type == socket.SOCK_DGRAM and not one.raddr
                )
                if is_server and not is_loopback(one.laddr.ip):
                    found.add(f"{one.laddr.ip} port {one.laddr.port}: {name}")
    return found


def is_loopback(address: str) -> bool:
    """Whether an IP address is this machine's own, also if IPv4 is mapped into IPv6."""
    found = ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


@contextmanager
def all_on_loopback(processes: Callable[[], Iterable[psutil.Process]]) -> Iterator[None]:
    """Look at the sockets of processes during the context, and fail for those open to others."""
    found: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_INTERVAL_S):
            found.update(open_to_others(processes()))

    looker = threading.Thread(target=look)
    looker.start()
    try:
        yield
    finally:
        over.set()
        looker.join()
    assert not found, "open to other machines: " + "; ".join(sorted(found))
