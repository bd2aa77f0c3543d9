"""Converts an HTTP request to a query, as ClickHouse's HTTP interface defines it. Pure.

https://clickhouse.com/docs/interfaces/http: the query is the parameter `query`, the body, or the
one followed by the other. The data of an INSERT follows its text. A parameter is in the URL or a
field of a form (multipart/form-data). The format is that of the text, else of the header
X-ClickHouse-Format, else `default_format`; the database is that of the header
X-ClickHouse-Database, else `database`. Every parameter that is none of transport, session or user
is a setting.
"""

import json
import re
import socket
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl

from services.store.engine import Answer, EngineError, Query
from services.store.tables import DATABASE

MAX_PARAMETERS: Final = 1000
_INSERT = re.compile(rb"\s*INSERT\s.*?\sFORMAT\s+\w+[ \t]*(?:;?\r?\n|$)", re.I | re.DOTALL)
# By their names in lower case: the database of the reader, and those whose tables it may list.
_DATABASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys((DATABASE, "default"), DATABASE),
        **{name: name for name in ("system", "information_schema", "INFORMATION_SCHEMA")},
    }
)
# Parameters of the request itself. The engine gets none of them.
_OF_REQUEST: Final = frozenset(
    {
        *("buffer_size", "client_protocol_version", "compress", "database", "decompress"),
        *("default_format", "enable_http_compression", "http_headers_progress_interval_ms"),
        *("http_receive_timeout", "http_send_timeout", "password", "query", "query_id"),
        *("quota_key", "role", "send_progress_in_http_headers", "session_check", "session_id"),
        *("session_timeout", "stacktrace", "user", "wait_end_of_query"),
    }
)
_STATUS: Mapping[int, HTTPStatus] = MappingProxyType(
    {
        **dict.fromkeys((36, 53, 62, 70, 72, 73, 115, 396, 456, 457), HTTPStatus.BAD_REQUEST),
        **dict.fromkeys((16, 46, 47, 60, 81, 372), HTTPStatus.NOT_FOUND),
        **dict.fromkeys((164, 497, 516), HTTPStatus.FORBIDDEN),
        159: HTTPStatus.REQUEST_TIMEOUT,
        48: HTTPStatus.NOT_IMPLEMENTED,
        202: HTTPStatus.SERVICE_UNAVAILABLE,
    }
)
_BINARY: Final = re.compile(
    r"Native|RowBinary\w*|Arrow\w*|Parquet|ORC|Avro|BSONEachRow|MsgPack|Npy|RawBLOB|Hash", re.I
)
_LINES: Final = re.compile(r"JSON\w*EachRow\w*|NDJSON|JSONLines", re.I)


def parameters_of(target: str) -> dict[str, str]:
    """The parameters of a request, from the part of its target after `?`. Raises EngineError."""
    try:
        return dict(parse_qsl(target, keep_blank_values=True, max_num_fields=MAX_PARAMETERS))
    except ValueError:
        raise EngineError(
            f"Code: 36. DB::Exception: A request has at most {MAX_PARAMETERS} parameters."
            " (BAD_ARGUMENTS)"
        ) from None


def query_of(
    given: Mapping[str, str],
    body: bytes,
    may_write: bool = False,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Query:
    """The query of a request, from its parameters, body and headers. Raises EngineError."""
    text, data = _text_and_data(given.get("query", ""), body)
    named = headers.get("X-ClickHouse-Format") or given.get("default_format")
    prefix = "param_"
    return Query(
        text,
        named or Query.output_format,
        database_of(headers.get("X-ClickHouse-Database") or given.get("database") or DATABASE),
        {k: v for k, v in given.items() if k not in _OF_REQUEST and not k.startswith(prefix)},
        {k.removeprefix(prefix): v for k, v in given.items() if k.startswith(prefix)},
        may_write,
        data,
    )


def database_of(name: str) -> str:
    """The database in which names without one are looked up. Raises EngineError."""
    if name not in _DATABASES:
        raise EngineError(
            f"Code: 81. DB::Exception: Database {name} cannot be used here, only {DATABASE}."
            " (UNKNOWN_DATABASE)"
        )
    return _DATABASES[name]


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
    name = output_format.lower()
    if _BINARY.fullmatch(output_format):
        return "application/octet-stream"
    if _LINES.fullmatch(output_format):
        return "application/x-ndjson; charset=UTF-8"
    if name.startswith("json"):
        return "application/json; charset=UTF-8"
    if name.startswith("csv"):
        return f"text/csv; charset=UTF-8; header={'present' if 'names' in name else 'absent'}"
    if name.startswith(("tsv", "tabseparated")):
        return "text/tab-separated-values; charset=UTF-8"
    return "text/plain; charset=UTF-8"


def headers_of(query_id: str, output_format: str, timezone: str) -> dict[str, str]:
    """Headers of every response to a query, as a ClickHouse server sends them."""
    return {
        "X-ClickHouse-Server-Display-Name": socket.gethostname(),
        "X-ClickHouse-Query-Id": query_id if _fits_a_header(query_id) else "",
        "X-ClickHouse-Format": output_format if _fits_a_header(output_format) else "",
        "X-ClickHouse-Timezone": timezone if _fits_a_header(timezone) else "UTC",
    }


def summary_of(answer: Answer) -> str:
    """Statistics of a query, as in X-ClickHouse-Summary."""
    numbers = {
        "read_rows": answer.rows_read,
        "read_bytes": answer.bytes_read,
        "written_rows": answer.rows_written,
        "written_bytes": answer.bytes_written,
        "total_rows_to_read": answer.rows_read,
        "result_rows": answer.result_rows,
        "result_bytes": answer.result_bytes,
        "elapsed_ns": int(answer.elapsed_s * 1e9),
    }
    return json.dumps({name: str(number) for name, number in numbers.items()})


def _fits_a_header(text: str) -> bool:
    return text.isascii() and text.isprintable()
