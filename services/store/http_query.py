"""Converts an HTTP request to a query, as ClickHouse's HTTP interface defines it. Pure.

https://clickhouse.com/docs/interfaces/http: the query is the parameter `query`, the body, or the
one followed by the other. The data of an INSERT follows its text. `database`, `default_format` and
`param_<name>` have their usual meaning. Parameters of transport, session or user are ignored; every
other parameter is a setting.
"""

import json
import re
import socket
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from urllib.parse import parse_qsl

from services.store.engine import Answer, EngineError, Query
from services.store.tables import DATABASE

_INSERT = re.compile(rb"\s*INSERT\s.*?\sFORMAT\s+\w+[ \t]*(?:;?\r?\n|$)", re.I | re.DOTALL)

_IGNORED = frozenset(
    {
        "buffer_size",
        "client_protocol_version",
        "compress",
        "decompress",
        "enable_http_compression",
        "http_headers_progress_interval_ms",
        "http_receive_timeout",
        "http_send_timeout",
        "password",
        "query_id",
        "quota_key",
        "role",
        "send_progress_in_http_headers",
        "session_check",
        "session_id",
        "session_timeout",
        "stacktrace",
        "user",
        "wait_end_of_query",
    }
)
_STATUS: Mapping[int, HTTPStatus] = MappingProxyType(
    {
        **dict.fromkeys((36, 53, 62, 70, 72, 73, 115, 396, 456, 457), HTTPStatus.BAD_REQUEST),
        **dict.fromkeys((16, 46, 47, 60, 81), HTTPStatus.NOT_FOUND),
        **dict.fromkeys((164, 497, 516), HTTPStatus.FORBIDDEN),
        159: HTTPStatus.REQUEST_TIMEOUT,
        48: HTTPStatus.NOT_IMPLEMENTED,
        202: HTTPStatus.SERVICE_UNAVAILABLE,
    }
)
_CONTENT_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "JSON": "application/json; charset=UTF-8",
        "JSONCompact": "application/json; charset=UTF-8",
        "JSONEachRow": "application/x-ndjson; charset=UTF-8",
        "CSV": "text/csv; charset=UTF-8; header=absent",
        "CSVWithNames": "text/csv; charset=UTF-8; header=present",
        "Native": "application/octet-stream",
        "RowBinary": "application/octet-stream",
        "Arrow": "application/octet-stream",
        "ArrowStream": "application/octet-stream",
        "Parquet": "application/octet-stream",
    }
)


def parameters_of(target: str) -> dict[str, str]:
    """The parameters of a request, from the part of its target after `?`."""
    return dict(parse_qsl(target, keep_blank_values=True))


def query_of(given: Mapping[str, str], body: bytes, may_write: bool = False) -> Query:
    """The query of a request, from its parameters and body. Raises EngineError."""
    text, data = _text_and_data(given.get("query", ""), body)
    database = given.get("database") or DATABASE
    if database not in (DATABASE, "default"):
        raise EngineError(
            f"Code: 81. DB::Exception: Database {database} cannot be used here, only {DATABASE}."
            " (UNKNOWN_DATABASE)"
        )
    if given.get("compress") == "1" or given.get("decompress") == "1":
        raise EngineError(
            "Code: 48. DB::Exception: compress and decompress are not supported here; use"
            " Accept-Encoding: gzip with enable_http_compression=1. (NOT_IMPLEMENTED)"
        )
    prefix, known = "param_", _IGNORED | {"query", "database", "default_format"}
    return Query(
        text,
        given.get("default_format") or Query.output_format,
        DATABASE,
        {k: v for k, v in given.items() if k not in known and not k.startswith(prefix)},
        {k.removeprefix(prefix): v for k, v in given.items() if k.startswith(prefix)},
        may_write,
        data,
    )


def _text_and_data(text: str, body: bytes) -> tuple[str, bytes]:
    """Split the text of an INSERT from the bytes that follow it; anything else is all text."""
    if text.lstrip()[:6].upper() == "INSERT":
        return text, body
    found = _INSERT.match(body)
    if not text and found:
        return found[0].decode(errors="replace"), body[found.end() :]
    return "\n".join(part for part in (text, body.decode(errors="replace")) if part), b""


def status_of(code: int) -> HTTPStatus:
    """HTTP status for a ClickHouse exception code."""
    return _STATUS.get(code, HTTPStatus.INTERNAL_SERVER_ERROR)


def content_type_of(output_format: str) -> str:
    """Media type of an output format."""
    return _CONTENT_TYPES.get(output_format, "text/plain; charset=UTF-8")


def answer_headers(answer: Answer, query_id: str) -> dict[str, str]:
    """Headers of a response, as a ClickHouse server sends them."""
    summary = {
        "read_rows": str(answer.rows_read),
        "read_bytes": str(answer.bytes_read),
        "elapsed_ns": str(int(answer.elapsed_s * 1e9)),
    }
    return {
        "Content-Type": content_type_of(answer.output_format),
        "X-ClickHouse-Server-Display-Name": socket.gethostname(),
        "X-ClickHouse-Query-Id": query_id if _fits_a_header(query_id) else "",
        "X-ClickHouse-Format": answer.output_format,
        "X-ClickHouse-Timezone": "UTC",
        "X-ClickHouse-Summary": json.dumps(summary),
    }


def _fits_a_header(text: str) -> bool:
    return text.isascii() and text.isprintable()
