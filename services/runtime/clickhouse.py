"""SQL queries to the store over ClickHouse's HTTP interface.

Requests to this machine bypass any proxy, which would see the
queries and the store's passwords, and could not reach this machine. Redirects are not followed:
their target would get the passwords.
"""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

from services.runtime.hosts import host_of, is_here
from services.runtime.settings import ServiceSettings

TIMEOUT_S = 60.0
PASSWORDS = Path("secrets")
Row = TypeVar("Row")
PROC_NET = Path("/proc/net")
LISTENING = "0A"  # state in /proc/net/tcp
ROOT_USER = 0


class ServerRefusedError(OSError):
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
            raise ServerRefusedError(error.read().decode(errors="replace").strip()) from error
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
        raise ServerRefusedError("The server redirects to another address; give that one")


def is_of_another_user(port: int, folder: Path = PROC_NET) -> bool:
    """Whether a process of a user other than this one and root listens on a TCP port: it could get
    the password of a store that is starting, and answer in its place. False if the system does not
    tell, which only Linux does."""
    allowed = (ROOT_USER, os.geteuid())
    for name in ("tcp", "tcp6"):
        try:
            lines = (folder / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for _, local, _, state, _, _, _, user, *_ in map(str.split, lines):
            listens = state == LISTENING and int(local.rpartition(":")[2], 16) == port
            if listens and int(user) not in allowed:
                return True
    return False


class QueryError(RuntimeError):
    """The store refused a query or is unreachable; the text is its message."""


class StoreUrl(str):
    """HTTP address of the store; prints as the address only.

    secrets: folder of the store's passwords, if the store runs on this machine. port: of the store
    of a local stack, which a process of this user must own; None for other stores.
    """

    secrets: Path | None = None
    port: int | None = None

    @classmethod
    def of(cls, host: str, port: int, data: Path) -> "StoreUrl":
        """The address of the store whose state is in `data`."""
        url = cls.at(f"http://{host}:{port}", data)
        url.port = port
        return url

    @classmethod
    def at(cls, address: str, data: Path) -> "StoreUrl":
        """The same, given the address of the store."""
        url = cls(address)
        url.secrets = data / PASSWORDS
        return url

    def headers(self, user: str = "reader") -> dict[str, str]:
        """Headers that authenticate a user; empty without a password. Raises QueryError if the
        store's port belongs to another user, who would get the password."""
        if self.port is not None and is_of_another_user(self.port):
            raise QueryError(
                f"The port {self.port} of the store belongs to another user's process."
            )
        try:
            password = (self.secrets or PASSWORDS).joinpath(f"clickhouse-{user}").read_text()
        except OSError:
            return {}
        return {"X-ClickHouse-User": user, "X-ClickHouse-Key": password.strip()}


def query_bytes(url: str, sql: str, output_format: str, **parameters: str) -> bytes:
    """The response to one query in a ClickHouse output format. Raises QueryError.

    `parameters` fill `{name:Type}` placeholders, so values are never pasted into SQL.
    """
    return _asked(url, sql, parameters, {"default_format": output_format})


def _asked(url: str, sql: str, parameters: Mapping[str, str], settings: Mapping[str, str]) -> bytes:
    fields = {f"param_{name}": value for name, value in parameters.items()} | dict(settings)
    headers = url.headers() if isinstance(url, StoreUrl) else {}
    request = urllib.request.Request(
        f"{url}/?{urllib.parse.urlencode(fields)}", sql.encode(), headers, method="POST"
    )
    return answer_of_store(url, request)


def answer_of_store(url: str, request: urllib.request.Request) -> bytes:
    """The response of the store at `url` to a request. Raises QueryError."""
    try:
        return answer_to(request, TIMEOUT_S)
    except ServerRefusedError as error:
        raise QueryError(str(error)) from error
    except OSError as error:
        reason = getattr(error, "reason", error)  # urllib wraps the error of the socket
        text = getattr(reason, "strerror", None) or reason
        raise QueryError(f"The store at {url} does not answer: {text}.") from error


class StoreQuery(Protocol):
    """Asks a store, as `query` does."""

    def __call__(self, url: str, sql: str, /, **parameters: str) -> list[dict[str, Any]]:
        """Result rows as dictionaries. Raises QueryError."""


def query(url: str, sql: str, /, **parameters: str) -> list[dict[str, Any]]:
    """Result rows as dictionaries; 64-bit integers are integers. Raises QueryError."""
    numbers = {"output_format_json_quote_64bit_integers": "0"}
    data = _asked(url, sql, parameters, {"default_format": "JSONEachRow", **numbers})
    return [json.loads(line) for line in data.splitlines()]


def query_as(row: Callable[..., Row], url: str, sql: str, **parameters: str) -> list[Row]:
    """The same as objects of a type whose fields are the columns. Raises QueryError."""
    return [row(**columns) for columns in query(url, sql, **parameters)]


def store_url(settings: ServiceSettings) -> StoreUrl:
    """The store's address for SQL."""
    if settings.store_url:
        return StoreUrl.at(settings.store_url, settings.data)
    return StoreUrl.of(settings.host, settings.port("store"), settings.data)
