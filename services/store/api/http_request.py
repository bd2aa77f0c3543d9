"""Reads a request strictly: what two programs could interpret differently is rejected, and no body
is longer than its limit, however it is encoded.

aiohttp parses the head and the chunks of a body. Here is what it lets pass: headers that must not
be repeated, bodies where none is expected, other forms of a target.

The request becomes a query as https://clickhouse.com/docs/interfaces/http defines it: the query is
the parameter `query`, the body, or the one followed by the other. The data of an INSERT follows its
text. A parameter is in the URL or a field of a form (multipart/form-data). The format is that of
the text, else of the header X-ClickHouse-Format, else `default_format`; the database is that of the
header X-ClickHouse-Database, else `database`. Every parameter that is none of transport, session or
user is a setting.

Requests of foreign web pages, which can make a browser on this machine send requests to loopback,
are rejected. A page whose name is made to resolve to 127.0.0.1 ("DNS rebinding") sends that name as
Host. A page of another origin, including another port of this machine, sends its own address as
Origin, or the browser marks the request with Sec-Fetch-Site.
"""

import json
import re
import socket
import zlib
from collections.abc import Iterable, Mapping
from email.message import Message
from http import HTTPStatus
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl

import pyarrow as pa
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from services.runtime.hosts import LOOPBACK, host_of, is_known
from services.store.api.http_server import connection_of
from services.store.engine import Answer, EngineError, Query
from services.store.tables import DATABASE

METHODS: Final = ("GET", "HEAD", "POST")
MAX_HEADERS_BYTES: Final = 128 * 1024
MAX_PARTS: Final = 1000
MAX_PART_HEAD_BYTES: Final = 4096
# Headers that must not be repeated: two values could be interpreted differently.
SINGLE: Final = (
    *("Authorization", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host"),
    *("Origin", "Sec-Fetch-Dest", "Sec-Fetch-Site", "Transfer-Encoding", "X-ClickHouse-Database"),
    *("X-ClickHouse-Format", "X-ClickHouse-Key", "X-ClickHouse-User"),
)
_TARGET: Final = re.compile(r"/[!-~]*")
_VALUE: Final = re.compile(r"[\t -~\x80-\xff]*")
_CODECS: Final = {"gzip": "gzip", "br": "brotli", "zstd": "zstd", "lz4": "lz4"}
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
        *("buffer_size", "client_protocol_version", "close_session", "compress", "database"),
        *("decompress", "default_format", "enable_http_compression", "http_receive_timeout"),
        *("http_headers_progress_interval_ms", "http_send_timeout", "password", "query"),
        "query_id",
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
ANY = "*"
OWN_ORIGINS = ("same-origin", "none")  # none: a person typed the address


class HeadError(ValueError):
    """A request is malformed; `status` and the text, one sentence, are the response."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class BodyError(ValueError):
    """A body is too long or malformed; the text says which, in one sentence."""


def check_head(request: web.BaseRequest) -> None:
    """Raise HeadError for a request that may be read in two ways."""
    headers = request.headers
    if not _TARGET.fullmatch(request.raw_path):
        raise _bad("The target must be a path.")
    if request.method not in METHODS:
        raise HeadError(HTTPStatus.NOT_IMPLEMENTED, f"Only {', '.join(METHODS)} are supported.")
    for name in SINGLE:
        if len(headers.getall(name, ())) > 1:
            raise _bad(f"There is more than one header {name}.")
    if not all(_VALUE.fullmatch(_latin(value)) for value in headers.values()):
        raise _bad("A header has a control character.")
    if sum(len(name) + len(value) for name, value in request.raw_headers) > MAX_HEADERS_BYTES:
        too_long = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        raise HeadError(too_long, "The headers are too long.")
    if "Host" not in headers:
        raise _bad("A Host header is required.")
    if "Upgrade" in headers:
        raise _bad("No other protocol is supported.")
    _check_framing(request)
    if headers.get("Expect", "100-continue").lower() != "100-continue":
        raise HeadError(HTTPStatus.EXPECTATION_FAILED, "Only 100-continue is supported as Expect.")


def _check_framing(request: web.BaseRequest) -> None:
    coding, length = (request.headers.get(f"{n}") for n in ("Transfer-Encoding", "Content-Length"))
    if coding is not None and length is not None:
        raise _bad("A body has a length or chunks, not both.")
    if coding is not None and coding.lower() != "chunked":
        raise _bad("The only supported transfer coding is chunked.")
    if coding is not None and request.version < (1, 1):
        raise _bad("HTTP/1.0 does not support chunked bodies.")
    if (coding is not None or int(length or 0) > 0) and request.method != "POST":
        raise _bad(f"A {request.method} must not have a body.")


async def read_body(request: web.BaseRequest, limit: int) -> bytes:
    """The decoded body of a request, at most `limit` bytes. Raises BodyError, after which the
    connection must be closed."""
    headers, result = request.headers, bytearray()
    if "Content-Length" not in headers and "Transfer-Encoding" not in headers:
        raise BodyError("A Content-Length is required.")
    if int(headers.get("Content-Length", 0)) > limit:
        raise BodyError(f"The body is longer than {limit} bytes.")
    if "Expect" in headers and request.version > (1, 0):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    try:
        while piece := await request.content.readany():
            result += piece
            if len(result) > limit:
                raise BodyError(f"The body is longer than {limit} bytes.")
    except (HttpProcessingError, web.RequestPayloadError) as error:
        raise BodyError("The body is malformed.") from error
    connection_of(request).serves()
    return decoded(bytes(result), headers.get("Content-Encoding", "").lower(), limit)


def decoded(raw: bytes, encoding: str, limit: int) -> bytes:
    """A body without its Content-Encoding. Raises BodyError."""
    if encoding in ("", "identity"):
        return raw
    try:
        if encoding == "deflate":
            data = _inflated(raw, limit)
        elif encoding in _CODECS:
            with pa.input_stream(pa.BufferReader(raw), compression=_CODECS[encoding]) as stream:
                data = stream.read(limit + 1)
        else:
            raise BodyError(f"The encoding {encoding} is not supported.")
    except (zlib.error, OSError, pa.ArrowException) as error:
        raise BodyError(f"The body is not valid {encoding}.") from error
    if len(data) > limit:
        raise BodyError(f"The body is longer than {limit} bytes.")
    return bytes(data)


def form_of(body: bytes, content_type: str) -> dict[str, str] | None:
    """The fields of a multipart/form-data body, or None for a body of another type. Raises
    BodyError."""
    if not content_type.lower().startswith("multipart/"):
        return None
    boundary = _described("Content-Type", content_type).get_boundary()
    if not content_type.lower().startswith("multipart/form-data") or not boundary:
        raise BodyError("The multipart body must be form-data with a boundary.")
    mark = b"--" + boundary.encode("latin-1", "replace")
    first, *parts = (b"\r\n" + body).split(b"\r\n" + mark)
    if first or not parts or parts[-1] not in (b"--", b"--\r\n") or len(parts) > MAX_PARTS:
        raise BodyError("The multipart body is malformed.")
    return dict(_field(part) for part in parts[:-1])


def _field(part: bytes) -> tuple[str, str]:
    head, gap, data = part.partition(b"\r\n\r\n")
    if not head.startswith(b"\r\n") or not gap or len(head) > MAX_PART_HEAD_BYTES:
        raise BodyError("The multipart body is malformed.")
    headers = {}
    for line in head[2:].decode("latin-1").split("\r\n"):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("content-transfer-encoding", "binary").lower() not in ("binary", "8bit", "7bit"):
        raise BodyError("The parts of a multipart body must not be encoded.")
    if headers.get("content-type", "").lower().startswith("multipart/"):
        raise BodyError("A part of a multipart body must not be multipart itself.")
    described = _described("Content-Disposition", headers.get("content-disposition", ""))
    field = described.get_param("name", header="Content-Disposition")
    if not isinstance(field, str) or described.get_filename() is not None:
        raise BodyError("A part of a multipart body must be a named field; files are not read.")
    try:
        return field, data.decode()
    except UnicodeDecodeError:
        raise BodyError(f"The field {field} is not valid UTF-8.") from None


def _described(name: str, value: str) -> Message:
    """A header with its parameters."""
    message = Message()
    message[name] = value
    return message


def accepted(headers: Mapping[str, str]) -> str:
    """The content encoding for a response, which the client accepts; empty for none."""
    offered = set()
    for each in headers.get("Accept-Encoding", "").lower().split(","):
        name, _, weight = each.partition(";")
        if weight.replace(" ", "") not in ("q=0", "q=0.0"):
            offered.add(name.strip())
    return next((name for name in ("br", "gzip", "deflate", "zstd", "lz4") if name in offered), "")


def encoded(data: bytes, encoding: str) -> bytes:
    """A response body in a content encoding, fast rather than small."""
    if encoding == "deflate":
        return zlib.compress(data, 1)
    return bytes(pa.Codec(_CODECS[encoding], 1).compress(data, asbytes=True))


def _inflated(raw: bytes, limit: int) -> bytes:
    """Deflate with the head of zlib, as HTTP defines it, or without, as some clients send it."""
    try:
        return zlib.decompressobj().decompress(raw, limit + 1)
    except zlib.error:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(raw, limit + 1)


def _latin(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").decode("latin-1")


def _bad(sentence: str) -> HeadError:
    return HeadError(HTTPStatus.BAD_REQUEST, sentence)


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
    match = _INSERT.match(body)
    if not text and match:
        return match[0].decode(errors="replace"), body[match.end() :]
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


def intrusion(
    headers: Mapping[str, str],
    names: Iterable[str],
    own: str = "",
    linked: bool = False,
    by_number: bool = False,
) -> str | None:
    """Why a request is rejected, in one sentence, or None.

    own: the host that the store listens on. names: other names of the store; `*` allows any Host,
    for a store behind a proxy that checks it. linked: whether the path is a page without data, to
    which any other page may link. by_number: whether any IP address is accepted as Host: cluster
    probes use the pod's.
    """
    allowed = {name.lower() for name in names}
    known = (LOOPBACK | {own.lower()} | allowed) - {""}
    host = headers.get("Host", "")
    if ANY not in known and not is_known(host, known, by_number):
        return "The store does not accept this Host; see the setting allowed_hosts."
    followed = linked and headers.get("Sec-Fetch-Dest") == "document"
    if headers.get("Sec-Fetch-Site", "none") not in OWN_ORIGINS and not followed:
        return "Pages of other origins cannot query the store."
    origin = headers.get("Origin")
    named = host_of(origin or "")
    is_own = named in known - {ANY} and (_is_same(origin or "", host) or named in allowed)
    if origin is not None and not is_own:
        return "Pages of this Origin cannot query the store; see the setting allowed_hosts."
    return None


def _is_same(origin: str, host: str) -> bool:
    """Whether an Origin has the address and port of the request."""
    scheme, _, authority = origin.lower().partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme, "")
    return bool(port) and authority.removesuffix(port) == host.lower().removesuffix(port)
