"""Keep web pages out: a browser on this machine can be made to send requests to loopback. Pure.

A page whose name is made to resolve to 127.0.0.1 ("DNS rebinding") sends that name as Host. A page
of elsewhere, on another port of this machine too, sends its own address as Origin, or is told apart
by the browser with Sec-Fetch-Site.
"""

from collections.abc import Iterable
from email.message import Message

from services.runtime.hosts import LOOPBACK, host_of, is_known

ANY = "*"
OWN_ORIGINS = ("same-origin", "none")  # none: a person typed the address


def intrusion(
    headers: Message,
    names: Iterable[str],
    own: str = "",
    linked: bool = False,
    by_number: bool = False,
) -> str | None:
    """Why a request is refused, in one sentence, or None.

    own: the host that the store listens on. names: others by which it is known; `*` allows every
    Host, for a store behind a proxy that checks it. linked: whether it is for a page without data,
    to which a link on any other page may lead. by_number: whether any IP address will do as Host:
    probes of a cluster use the one that a pod has.
    """
    allowed = {name.lower() for name in names}
    known = (LOOPBACK | {own.lower()} | allowed) - {""}
    host = headers.get("Host", "")
    if ANY not in known and not is_known(host, known, by_number):
        return "The store is not known by this Host; see the setting allowed_hosts."
    followed = linked and headers.get("Sec-Fetch-Dest") == "document"
    if headers.get("Sec-Fetch-Site", "none") not in OWN_ORIGINS and not followed:
        return "Pages of other origins cannot ask the store."
    origin = headers.get("Origin")
    named = host_of(origin or "")
    is_own = named in known - {ANY} and (_is_same(origin or "", host) or named in allowed)
    if origin is not None and not is_own:
        return "Pages of this Origin cannot ask the store; see the setting allowed_hosts."
    return None


def _is_same(origin: str, host: str) -> bool:
    """Whether an Origin is the very address and port that was asked."""
    scheme, _, authority = origin.lower().partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme, "")
    return bool(port) and authority.removesuffix(port) == host.lower().removesuffix(port)
