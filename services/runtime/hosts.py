"""Checks the Host header of a request, and which addresses are this machine's.

In a DNS rebinding attack, a page's name resolves to 127.0.0.1 and is sent as Host. It is never an
IP address, which no name resolves to, and never one of the server's own names.
"""

import socket
from collections.abc import Iterable
from functools import cache
from ipaddress import ip_address
from urllib.parse import urlsplit

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


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
