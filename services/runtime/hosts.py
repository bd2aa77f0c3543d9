"""Checks the Host header of a request. Pure.

In a DNS rebinding attack, a page's name resolves to 127.0.0.1 and is sent as Host. It is never an
IP address, which no name resolves to, and never one of the server's own names.
"""

from collections.abc import Iterable
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


def is_number(name: str) -> bool:
    """Whether a name is an IP address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
