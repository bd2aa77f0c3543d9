"""Keep web pages out: a browser on this machine can be made to send requests to loopback. Pure.

A page whose name is made to resolve to 127.0.0.1 ("DNS rebinding") sends that name as Host, and a
page of another site sends its Origin. Neither is ever a name of the store.
"""

from collections.abc import Iterable
from email.message import Message
from urllib.parse import urlsplit

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
ANY = "*"


def intrusion(headers: Message, names: Iterable[str], linked: bool = False) -> str | None:
    """Why a request is refused, in one sentence, or None.

    linked: whether it is for a page without data, to which a link on any other page may lead.

    names: hosts by which the store is known besides loopback; `*` allows every Host, for a store
    behind a proxy that checks it.
    """
    known = LOOPBACK | {name.lower() for name in names}
    if ANY not in known and _host(f"//{headers.get('Host', '')}") not in known:
        return "The store is not known by this Host; see the setting allowed_hosts."
    followed = linked and headers.get("Sec-Fetch-Dest") == "document"
    if headers.get("Sec-Fetch-Site") == "cross-site" and not followed:
        return "Pages of other sites cannot ask the store."
    origin = headers.get("Origin")
    if origin is not None and _host(origin) not in known - {ANY}:
        return "Pages of this Origin cannot ask the store; see the setting allowed_hosts."
    return None


def _host(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""
