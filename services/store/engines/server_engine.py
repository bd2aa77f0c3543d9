"""A ClickHouse server, through its HTTP interface: the same statements as for the embedded engine.

An insert is one request with one Arrow record batch, which the server writes as one part, so it is
atomic, as with the embedded engine. If the server rejects it or did not receive all of it, the
table is asked for its last offset before a retry. If there is no answer of ClickHouse's own (a
timeout, a broken connection, a proxy that answers instead), the insert may still be running. The
process then ends, and asks the table after its restart.

The server has its own accounts. The store connects as one that may create databases, tables and
users, and creates the reader itself: SELECT on the database, limits, readonly. Queries over the
store's own HTTP interface run as the reader, and are also judged like those of the embedded engine.
"""

import hashlib
import http.client
import io
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import pyarrow as pa

from services.runtime.clickhouse import opener
from services.store.engine import Answer, EngineError, InsertTimeoutError, Query, want_size
from services.store.policy.permissions import quoted
from services.store.policy.query_policy import JUDGE, Judge
from services.store.policy.sql_statements import lifted
from services.store.settings import StoreSettings, admin_bounds, bounds
from services.store.tables import DATABASE

READER = "tidegauge_reader"
STATEMENT_TIMEOUT_S = 600.0
OVERHEAD_S = 10.0
EXCEPTION_CODE = "X-ClickHouse-Exception-Code"


class ServerEngine:
    """`Engine` on a server. See services/store/engine.py for the guarantees of its methods."""

    def __init__(self, settings: StoreSettings, reader_password: str, judge: Judge = JUDGE) -> None:
        """Connect, and create the reader unless disabled. Raises EngineError.

        judge: decides whether a query may run.
        """
        self._judge = judge
        self._settings = settings
        self._url = settings.clickhouse_url.rstrip("/")
        self._opener = opener(self._url)
        self._own = (settings.clickhouse_user, settings.clickhouse_secret())
        self._reader = self._own
        self.rows("SELECT 1 AS one")
        if settings.clickhouse_manage_reader:
            self.execute(reader_statements(settings, reader_password))
            self._reader = (READER, reader_password)

    def execute(self, statements: Iterable[str]) -> None:
        for statement in statements:
            self._ask(statement.encode(), {}, self._own)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        plain = {"default_format": "JSONEachRow", "output_format_json_quote_64bit_integers": "0"}
        data, _headers = self._ask(sql.encode(), plain, self._own)
        return [json.loads(line) for line in data.splitlines()]

    def insert(self, table: str, block: pa.Table) -> None:
        data = io.BytesIO()
        with pa.ipc.new_stream(data, block.schema) as stream:
            stream.write_table(block.combine_chunks())
        names = ", ".join(f"`{name}`" for name in block.column_names)
        text = f"INSERT INTO {DATABASE}.{table} ({names}) FORMAT ArrowStream"
        self._ask(data.getvalue(), {"query": text, "async_insert": "0"}, self._own)

    def cancel(self, query_id: str) -> None:
        self.execute([f"KILL QUERY WHERE query_id = {quoted(query_id)} ASYNC"])

    def release_memory(self) -> None:
        """The server does it on its own."""

    def close(self) -> None:
        """Nothing to close."""

    def answer(self, query: Query) -> Answer:
        user = self._own if query.may_write else self._reader

        def engine_reads(sql: str, parameters: Mapping[str, str]) -> str:
            named = {f"param_{name}": value for name, value in parameters.items()}
            data, _ = self._ask(sql.encode(), named | {"default_format": "TSVRaw"}, user)
            return data.decode(errors="replace")

        query = lifted(query, bounds(self._settings, {}))
        bounds_of = admin_bounds if query.may_write else bounds
        limits = bounds_of(self._settings, query.settings)
        given = self._judge.settings(query, limits)
        judged = self._judge.statement(query, engine_reads)
        given |= {f"param_{name}": value for name, value in judged.parameters.items()}
        given |= {name: str(value) for name, value in limits.items()}
        if not query.may_write and self._reader == self._own:
            given["readonly"] = "2"  # the reader's own account already has this setting
        given |= {"database": query.database, "default_format": query.output_format}
        body = judged.text.encode()
        if query.id:
            given["query_id"] = query.id
        if judged.insert is not None:
            given["query"], body = judged.text, judged.insert.data
        started = time.monotonic()
        most = None if query.may_write else self._settings.query_max_result_bytes
        data, headers = self._ask(body, given, user, most)
        summary = json.loads(headers.get("X-ClickHouse-Summary", "{}"))
        return Answer(
            data=data,
            output_format=headers.get("X-ClickHouse-Format") or query.output_format,
            rows_read=int(summary.get("read_rows", 0)),
            bytes_read=int(summary.get("read_bytes", 0)),
            elapsed_s=time.monotonic() - started,
            result_rows=int(summary.get("result_rows", 0)),
            result_bytes=int(summary.get("result_bytes", 0)),
            rows_written=int(summary.get("written_rows", 0)),
            bytes_written=int(summary.get("written_bytes", 0)),
        )

    def _ask(
        self,
        body: bytes,
        parameters: Mapping[str, str],
        user: tuple[str, str],
        most: int | None = None,
    ) -> tuple[bytes, Mapping[str, str]]:
        """The response and its headers. most: its maximum size in bytes."""
        headers = {"X-ClickHouse-User": user[0], "X-ClickHouse-Key": user[1]}
        url = f"{self._url}/?{urllib.parse.urlencode(parameters)}"
        request = urllib.request.Request(url, body, headers, method="POST")
        limit_s = float(parameters.get("max_execution_time", 0)) or STATEMENT_TIMEOUT_S
        try:
            with self._opener.open(request, timeout=limit_s + OVERHEAD_S) as answer:
                data = answer.read() if most is None else _read(answer, most)
                return data, dict(answer.headers)
        except (OSError, http.client.HTTPException) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> EngineError:
        """Classify a failed request. urllib raises its own URLError for a request that was not sent
        completely, so nothing was executed."""
        if isinstance(error, urllib.error.HTTPError):
            return self._refusal(error)
        if isinstance(error, TimeoutError) or isinstance(
            getattr(error, "reason", None), TimeoutError
        ):
            return InsertTimeoutError(f"ClickHouse at {self._url} took too long")
        if isinstance(error, urllib.error.URLError):
            return EngineError(f"ClickHouse at {self._url} does not answer: {error}")
        return InsertTimeoutError(f"ClickHouse at {self._url} ended its response early: {error!r}")

    def _refusal(self, error: urllib.error.HTTPError) -> EngineError:
        """Classify an error response. If it contains ClickHouse's code, nothing was executed. Any
        other response with status 500 or higher is a proxy's, which may have forwarded the
        request."""
        try:
            text = error.read().decode(errors="replace").strip()
        except (OSError, http.client.HTTPException):
            text = ""
        message = text or f"the server answered {error.code}"
        is_its_own = EXCEPTION_CODE in error.headers or text.startswith("Code: ")
        if error.code < HTTPStatus.INTERNAL_SERVER_ERROR or is_its_own:
            return EngineError(message)
        return InsertTimeoutError(
            f"a proxy in front of {self._url} answered {error.code}: {message}"
        )


def reader_statements(settings: StoreSettings, password: str) -> Iterator[str]:
    """Statements that create the reader: SELECT on the database, within limits that it cannot
    raise."""
    digest = hashlib.sha256(password.encode()).hexdigest()
    limits = ", ".join(  # 0 would mean no limit
        f"{name} = {value!r}{'' if isinstance(value, str) else f' MIN 1 MAX {value!r}'}"
        for name, value in bounds(settings, {}).items()
    )
    who = f"IDENTIFIED WITH sha256_hash BY {quoted(digest)} SETTINGS {limits}, readonly = 2"
    yield f"CREATE USER IF NOT EXISTS {READER} {who}"
    yield f"ALTER USER {READER} {who}"
    yield f"CREATE DATABASE IF NOT EXISTS {DATABASE}"
    yield f"GRANT SELECT ON {DATABASE}.* TO {READER}"


def _read(answer: http.client.HTTPResponse, most: int) -> bytes:
    """A whole response of at most this many bytes. Raises EngineError, IncompleteRead."""
    data = answer.read(most + 1)
    want_size(len(data), most)
    if answer.length:  # what is missing
        raise http.client.IncompleteRead(data, answer.length)
    return data
