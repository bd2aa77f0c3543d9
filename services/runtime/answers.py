"""Answers of services over HTTP. What is on this machine is asked past any proxy: one would be told
the queries and the store's passwords, and could not reach it."""

import urllib.error
import urllib.request
from functools import cache
from http.client import HTTPException

from services.runtime.hosts import LOOPBACK, host_of


class RefusedError(OSError):
    """A server said no; the text is what it said."""


def answer_to(request: urllib.request.Request | str, timeout_s: float) -> bytes:
    """The body of an answer. Raises RefusedError, and OSError where none comes or it breaks off."""
    url = request if isinstance(request, str) else request.full_url
    try:
        try:
            with opener(url).open(request, timeout=timeout_s) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            raise RefusedError(error.read().decode(errors="replace").strip()) from error
    except HTTPException as error:
        raise OSError(f"its answer broke off: {error!r}") from error


def opener(url: str) -> urllib.request.OpenerDirector:
    """What asks this address: past any proxy if it is on this machine."""
    return _past_proxies() if host_of(url) in LOOPBACK else urllib.request.build_opener()


@cache
def _past_proxies() -> urllib.request.OpenerDirector:
    """Made once: from Python 3.12 on, an opener reads all certificates of the machine."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))
