"""The names of a server in the Host of a request. Pure.

A page whose name is made to resolve to 127.0.0.1 ("DNS rebinding") sends that name as Host. It is
never an IP address, which no name resolves to, and never one of the server's own names.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def host_of(address: str) -> str:
    """The name or number in an address such as `//name:port` or an Origin; empty where none is."""
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


def is_known(host: str, names: Iterable[str], by_number: bool = False) -> bool:
    """Whether a Host is one of these names, or where `by_number` says so any IP address."""
    name = host_of(f"//{host}")
    return name in names or (by_number and is_number(name))


def is_number(name: str) -> bool:
    """Whether a name is an IP address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
