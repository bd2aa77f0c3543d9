"""HTTP requests to services. Requests to this machine bypass any proxy, which would see the
queries and the store's passwords, and could not reach this machine. Redirects are not followed:
their target would get the passwords."""

import urllib.error
import urllib.request
from functools import cache
from http.client import HTTPException
from typing import Any, NoReturn

from services.runtime.hosts import host_of, is_here


class RefusedError(OSError):
    """The server returned an error; the text is its message."""


def answer_to(request: urllib.request.Request | str, timeout_s: float) -> bytes:
    """The response body. Raises RefusedError, and OSError for no response or a truncated one."""
    url = request if isinstance(request, str) else request.full_url
    try:
        try:
            with opener(url).open(request, timeout=timeout_s) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            raise RefusedError(error.read().decode(errors="replace").strip()) from error
    except HTTPException as error:
        raise OSError(f"its answer is incomplete: {error!r}") from error


def opener(url: str) -> urllib.request.OpenerDirector:
    """The opener for this address: without redirects, and without a proxy if it is on this
    machine."""
    if is_here(host_of(url)):
        return _past_proxies()
    return urllib.request.build_opener(NoRedirects())


@cache
def _past_proxies() -> urllib.request.OpenerDirector:
    """Built once: since Python 3.12 each opener loads all certificates of the machine."""
    return urllib.request.build_opener(NoRedirects(), urllib.request.ProxyHandler({}))


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirect a RefusedError."""

    def redirect_request(self, *_arguments: Any, **_fields: Any) -> NoReturn:
        raise RefusedError("The server redirects to another address; give that one")
