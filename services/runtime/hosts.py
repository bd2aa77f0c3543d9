"""HTTP between machines: which addresses are this one's, the Host header, proxies and deadlines.

In a DNS rebinding attack, a page's name resolves to 127.0.0.1 and is sent as Host. It is never an
IP address, which no name resolves to, and never one of the server's own names.

To others: the proxy that the environment names for an address (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY
and NO_PROXY, also in small letters, as read by Python's urllib), and connections with one deadline
for everything that is sent and received, since a socket's own timeout restarts with every byte.
"""

import base64
import http.client
import io
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
DEFAULT_PORT = 80


def host_of(address: str) -> str:
    """The name or number in an address such as `//name:port` or an Origin; empty if there is
    none."""
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


def is_known(host: str, names: Iterable[str], by_number: bool = False) -> bool:
    """Whether a Host is one of these names or, with `by_number`, any IP address."""
    name = host_of(f"//{host}")
    return name in names or (by_number and is_number(name))


@cache
def is_here(host: str) -> bool:
    """Whether this is `localhost` or an IP address of this machine: others cannot be bound."""
    if not is_number(host):
        return host == "localhost"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def is_number(name: str) -> bool:
    """Whether a name is an IP address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class ProxyError(ValueError):
    """A variable does not name a proxy that can be used; the text is a clause without its value,
    which may contain a password."""


@dataclass(frozen=True)
class Proxy:
    """A proxy. headers: its login, if it has one."""

    host: str
    port: int
    headers: dict[str, str]


def proxy_for(url: str) -> Proxy | None:
    """The proxy for an address; None to connect directly, as always to this machine. Raises
    ProxyError."""
    parts = urlsplit(url)
    host, named = parts.hostname or "", getproxies_environment()
    address = named.get(parts.scheme) or named.get("all")
    place = f"{host}:{parts.port}" if parts.port else host
    if not address or host in LOOPBACK or proxy_bypass(place):
        return None
    variable = f"{parts.scheme.upper()}_PROXY or ALL_PROXY"
    try:
        result = urlsplit(address if "://" in address else f"http://{address}")
        port = result.port or DEFAULT_PORT
    except ValueError as error:
        raise ProxyError(f"{variable} is not an address") from error
    if result.scheme != "http" or not result.hostname:
        raise ProxyError(f"{variable} must be http://host:port; other kinds are not supported")
    headers = {}
    if result.username is not None:
        login = f"{unquote(result.username)}:{unquote(result.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    return Proxy(result.hostname, port, headers)


@contextmanager
def connected(
    url: str, timeout_s: float, proxy: Proxy | None = None
) -> Iterator[http.client.HTTPConnection]:
    """A connection to the host of a URL: directly, to the proxy, or for https through a tunnel of
    the proxy. Sending or receiving later than `timeout_s` from now raises TimeoutError. Resolving
    the name cannot be interrupted, and connecting to each of its addresses may take as long."""
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    kind = http.client.HTTPSConnection if is_tls else http.client.HTTPConnection
    host, port = (proxy.host, proxy.port) if proxy else (parts.hostname or "", parts.port)
    deadline_s = time.monotonic() + timeout_s
    with closing(kind(host, port, timeout=timeout_s)) as connection:
        if proxy and is_tls:
            connection.set_tunnel(parts.hostname or "", parts.port, proxy.headers)
        _connect(connection, deadline_s)
        with closing(connection.sock) as opened:
            connection.sock = _Hurried(opened, deadline_s)
            yield connection


def _connect(connection: http.client.HTTPConnection, deadline_s: float) -> None:
    """Connect. What a tunnel and TLS take counts, too: a proxy may answer byte by byte."""

    def end() -> None:
        if (opened := connection.sock) is not None:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, deadline_s - time.monotonic()), end)
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() >= deadline_s:
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()


def path_of(url: str) -> str:
    """Path and query of a URL."""
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


class _Hurried:
    """A connected socket with a deadline. Implements what http.client uses of a socket."""

    def __init__(self, opened: socket.socket, deadline_s: float) -> None:
        self._socket = opened
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
