"""Rejects requests of foreign web pages, which can make a browser on this machine send requests to
loopback. Pure.

A page whose name is made to resolve to 127.0.0.1 ("DNS rebinding") sends that name as Host. A page
of another origin, including another port of this machine, sends its own address as Origin, or the
browser marks the request with Sec-Fetch-Site.
"""

from collections.abc import Iterable, Mapping

from services.runtime.hosts import LOOPBACK, host_of, is_known

ANY = "*"
OWN_ORIGINS = ("same-origin", "none")  # none: a person typed the address


def intrusion(
    headers: Mapping[str, str],
    names: Iterable[str],
    own: str = "",
    linked: bool = False,
    by_number: bool = False,
) -> str | None:
    """Why a request is rejected, in one sentence, or None.

    own: the host that the store listens on. names: other names of the store; `*` allows any Host,
    for a store behind a proxy that checks it. linked: whether the path is a page without data, to
    which any other page may link. by_number: whether any IP address is accepted as Host: cluster
    probes use the pod's.
    """
    allowed = {name.lower() for name in names}
    known = (LOOPBACK | {own.lower()} | allowed) - {""}
    host = headers.get("Host", "")
    if ANY not in known and not is_known(host, known, by_number):
        return "The store does not accept this Host; see the setting allowed_hosts."
    followed = linked and headers.get("Sec-Fetch-Dest") == "document"
    if headers.get("Sec-Fetch-Site", "none") not in OWN_ORIGINS and not followed:
        return "Pages of other origins cannot query the store."
    origin = headers.get("Origin")
    named = host_of(origin or "")
    is_own = named in known - {ANY} and (_is_same(origin or "", host) or named in allowed)
    if origin is not None and not is_own:
        return "Pages of this Origin cannot query the store; see the setting allowed_hosts."
    return None


def _is_same(origin: str, host: str) -> bool:
    """Whether an Origin has the address and port of the request."""
    scheme, _, authority = origin.lower().partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme, "")
    return bool(port) and authority.removesuffix(port) == host.lower().removesuffix(port)
