"""Answers of services over HTTP. What is on this machine is asked past any proxy: one would be told
the queries and the store's passwords, and could not reach it."""

import urllib.error
import urllib.request
from http.client import HTTPException

from services.runtime.hosts import LOOPBACK, host_of


class RefusedError(OSError):
    """A server said no; the text is what it said."""


def answer_to(request: urllib.request.Request | str, timeout_s: float) -> bytes:
    """The body of an answer. Raises RefusedError, and OSError where none comes or it breaks off."""
    url = request if isinstance(request, str) else request.full_url
    try:
        try:
            with _opener(url).open(request, timeout=timeout_s) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            raise RefusedError(error.read().decode(errors="replace").strip()) from error
    except HTTPException as error:
        raise OSError(f"its answer broke off: {error!r}") from error


def _opener(url: str) -> urllib.request.OpenerDirector:
    if host_of(url) in LOOPBACK:
        return urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener()
