"""From an HTTP request to a query, as ClickHouse's HTTP interface has it. Pure.

https://clickhouse.com/docs/interfaces/http: the query is the parameter `query`, the body, or one
followed by the other; `database`, `default_format` and `param_<name>` have their meaning; what
describes transport, session or user is ignored; every other parameter is a setting.
"""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from urllib.parse import parse_qsl

from services.store.engine import Query

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
        **dict.fromkeys((164, 497), HTTPStatus.FORBIDDEN),
        159: HTTPStatus.REQUEST_TIMEOUT,
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


def query_of(target: str, body: str) -> Query:
    """The query of a request, from the part of its target after `?` and its body."""
    given = dict(parse_qsl(target, keep_blank_values=True))
    texts = (given.pop("query", ""), body)
    named = {name: given.pop(name) for name in ("database", "default_format") if name in given}
    prefix = "param_"
    parameters = {k.removeprefix(prefix): v for k, v in given.items() if k.startswith(prefix)}
    settings = {k: v for k, v in given.items() if k not in _IGNORED and not k.startswith(prefix)}
    return Query(
        "\n".join(text for text in texts if text),
        named.get("default_format") or Query.output_format,
        named.get("database") or Query.database,
        settings,
        parameters,
    )


def status_of(code: int) -> HTTPStatus:
    """HTTP status that goes with a ClickHouse exception code."""
    return _STATUS.get(code, HTTPStatus.INTERNAL_SERVER_ERROR)


def content_type_of(output_format: str) -> str:
    """Media type of an output format."""
    return _CONTENT_TYPES.get(output_format, "text/plain; charset=UTF-8")
