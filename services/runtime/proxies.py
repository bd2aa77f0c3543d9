"""The proxy that the environment names for an address: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and
NO_PROXY, also in small letters, as read by Python's urllib."""

import base64
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from services.runtime.hosts import LOOPBACK

DEFAULT_PORT = 80


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
        found = urlsplit(address if "://" in address else f"http://{address}")
        port = found.port or DEFAULT_PORT
    except ValueError as error:
        raise ProxyError(f"{variable} is not an address") from error
    if found.scheme != "http" or not found.hostname:
        raise ProxyError(f"{variable} must be http://host:port; other kinds are not supported")
    headers = {}
    if found.username is not None:
        login = f"{unquote(found.username)}:{unquote(found.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    return Proxy(found.hostname, port, headers)
