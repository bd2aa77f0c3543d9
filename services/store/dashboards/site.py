"""`/dashboards/`: serves the page that shows the Grafana dashboard files live, and answers its
requests. It accepts no SQL and returns no passwords.

    GET  /dashboards/, /dashboards/d/<uid>    the page
    GET  /dashboards/page/<file>              its modules, style and chart library
    GET  /dashboards/api/dashboards           every dashboard file: uid, title, folder
    GET  /dashboards/api/dashboards/<uid>     one of them, unchanged
    POST /dashboards/api/query                the answer to one query of one of them

See services/store/dashboards/queries.py for the fields of a query.
"""

import gzip
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from services.store.api.http_request import status_of
from services.store.dashboards.queries import (
    DASHBOARDS_DIR,
    AskingError,
    NotThereError,
    asked_from,
    dashboard,
    load_dashboards,
    query_for,
)
from services.store.engine import Answer, EngineError, Query

PREFIX: Final = "/dashboards"
MAX_REQUEST_BYTES: Final = 64 * 1024
VIEWER_DIR: Final = Path(__file__).resolve().parents[1] / "viewer"
JSON_TYPE: Final = "application/json; charset=UTF-8"
# The chart library needs style attributes. Scripts are always files of this page.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        ".html": "text/html; charset=UTF-8",
        ".css": "text/css; charset=UTF-8",
        ".js": "text/javascript; charset=UTF-8",
        ".mjs": "text/javascript; charset=UTF-8",
        ".svg": "image/svg+xml",
    }
)


@dataclass(frozen=True)
class Page:
    """A response."""

    status: HTTPStatus
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


def is_page(path: str) -> bool:
    """Whether a path is a static file of the page, which contains no data."""
    return path in (PREFIX, f"{PREFIX}/") or path.startswith(f"{PREFIX}/d/")


@dataclass(frozen=True)
class Request:
    """A request of an authorised client. read_body: returns the body, up to a number of bytes. ask:
    returns the engine's answer to a query of this client."""

    method: str
    path: str
    headers: Mapping[str, str]
    read_body: Callable[[int], Awaitable[bytes]]
    ask: Callable[[Query], Awaitable[Answer]]


@dataclass(frozen=True)
class DashboardsSite:
    """Answers requests below PREFIX from the dashboard files of a folder and the engine."""

    folder: Path = DASHBOARDS_DIR

    async def answer(self, request: Request) -> Page:
        """The response, also to invalid requests. Raises BodyError for an invalid body."""
        name = request.path.removeprefix(PREFIX)
        if name == "/api/query":
            return await self._answer_query(request)
        if request.method == "POST":
            return _refused(HTTPStatus.METHOD_NOT_ALLOWED, "This address does not accept POST.")
        if name.startswith("/api/"):
            return self._describe(name.removeprefix("/api/"))
        if name == "":
            return Page(HTTPStatus.MOVED_PERMANENTLY, b"", {"Location": f"{PREFIX}/"})
        if name == "/" or name.startswith("/d/"):
            return _file("index.html", request.headers)
        return _file(name.removeprefix("/page/"), request.headers)

    def _describe(self, name: str) -> Page:
        dashboards = load_dashboards(self.folder)
        if name == "dashboards":
            return _json(HTTPStatus.OK, [each.as_entry() for each in dashboards])
        uid = name.removeprefix("dashboards/")
        try:
            return _json(HTTPStatus.OK, dashboard(uid, dashboards).model)
        except NotThereError as error:
            return _refused(HTTPStatus.NOT_FOUND, str(error))

    async def _answer_query(self, request: Request) -> Page:
        if request.method != "POST":
            return _refused(HTTPStatus.METHOD_NOT_ALLOWED, "A query must be sent by POST.")
        if not request.headers.get("Content-Type", "").startswith("application/json"):
            # A form of another origin can post text, but this type requires a preflight request.
            return _refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The query must be JSON.")
        body = await request.read_body(MAX_REQUEST_BYTES)
        try:
            asked = asked_from(body)
            result = dashboard(asked.dashboard, load_dashboards(self.folder))
            query, interval_s = query_for(asked, result)
        except (AskingError, NotThereError) as error:
            return _refused(HTTPStatus.BAD_REQUEST, str(error))
        return _compressed(await _result(query, interval_s, request.ask), request.headers)


async def _result(query: Query, interval_s: int, ask: Callable[[Query], Awaitable[Answer]]) -> Page:
    """{"sql": the query, "interval_s": interval between points of a graph, "elapsed_s", "result":
    ClickHouse's JSONCompact} or {"sql", "error"}."""
    sql, headers = json.dumps(query.text).encode(), {"Content-Type": JSON_TYPE}
    try:
        result = await ask(query)
    except EngineError as error:
        text = json.dumps(str(error)).encode()
        return Page(status_of(error.code), b'{"sql":%b,"error":%b}' % (sql, text), headers)
    body = b'{"sql":%b,"interval_s":%d,"elapsed_s":%.6f,"result":%b}' % (
        sql,
        interval_s,
        result.elapsed_s,
        result.data,
    )
    return Page(HTTPStatus.OK, body, headers | {"Cache-Control": "no-store"})


def _file(name: str, headers: Mapping[str, str]) -> Page:
    result = _files().get(name)
    if result is None:
        return _refused(HTTPStatus.NOT_FOUND, "There is nothing at this address.")
    path = VIEWER_DIR / name
    body, packed, tag = _contents(path, path.stat().st_mtime_ns)
    sent = {
        "Content-Type": result,
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Cache-Control": "no-cache",
        "ETag": tag,
        "Vary": "Accept-Encoding",
    }
    if headers.get("If-None-Match") == tag:
        return Page(HTTPStatus.NOT_MODIFIED, b"", sent)
    if "gzip" in headers.get("Accept-Encoding", ""):
        return Page(HTTPStatus.OK, packed, sent | {"Content-Encoding": "gzip"})
    return Page(HTTPStatus.OK, body, sent)


@lru_cache(maxsize=1)
def _files() -> dict[str, str]:
    """Media type of every file of the page by name; no other files are served."""
    return {
        path.relative_to(VIEWER_DIR).as_posix(): TYPES[path.suffix]
        for path in VIEWER_DIR.rglob("*")
        if path.suffix in TYPES
    }


@lru_cache(maxsize=128)
def _contents(path: Path, _modified_ns: int) -> tuple[bytes, bytes, str]:
    body = path.read_bytes()
    return body, gzip.compress(body, 6), f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _json(status: HTTPStatus, value: Any) -> Page:
    body = json.dumps(value).encode()
    return Page(status, body, {"Content-Type": JSON_TYPE, "Cache-Control": "no-cache"})


def _refused(status: HTTPStatus, sentence: str) -> Page:
    return _json(status, {"error": sentence})


def _compressed(page: Page, headers: Mapping[str, str]) -> Page:
    if len(page.body) < 1024 or "gzip" not in headers.get("Accept-Encoding", ""):
        return page
    body = gzip.compress(page.body, 1)
    return Page(page.status, body, page.headers | {"Content-Encoding": "gzip"})
