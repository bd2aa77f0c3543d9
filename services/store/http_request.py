"""Reads a request strictly: what two programs could interpret differently is rejected, and no body
is longer than its limit, however it is encoded.

aiohttp parses the head and the chunks of a body. Here is what it lets pass: headers that must not
be repeated, bodies where none is expected, other forms of a target.
"""

import re
import zlib
from collections.abc import Mapping
from email.message import Message
from http import HTTPStatus
from typing import Final

import pyarrow as pa
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from services.store.http_server import connection_of

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
    headers, found = request.headers, bytearray()
    if "Content-Length" not in headers and "Transfer-Encoding" not in headers:
        raise BodyError("A Content-Length is required.")
    if int(headers.get("Content-Length", 0)) > limit:
        raise BodyError(f"The body is longer than {limit} bytes.")
    if "Expect" in headers and request.version > (1, 0):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    try:
        while piece := await request.content.readany():
            found += piece
            if len(found) > limit:
                raise BodyError(f"The body is longer than {limit} bytes.")
    except (HttpProcessingError, web.RequestPayloadError) as error:
        raise BodyError("The body is malformed.") from error
    connection_of(request).serves()
    return decoded(bytes(found), headers.get("Content-Encoding", "").lower(), limit)


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
