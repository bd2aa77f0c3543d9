"""Parses the head of a request strictly: anything that two programs could interpret differently is
rejected.

RFC 9112. The end of a body determines where the next request begins. Anything that could make it
ambiguous is an error, after which nothing more is read: two lengths, a length and chunks, a coding
other than `chunked`, a body where none is expected, a malformed header line.
"""

import io
import re
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus
from typing import Final

METHODS: Final = ("GET", "HEAD", "POST")
MAX_TARGET_BYTES: Final = 64 * 1024
MAX_LINE_BYTES: Final = 16 * 1024
MAX_HEADERS: Final = 100
MAX_HEAD_BYTES: Final = 128 * 1024
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,20}) (/[!-~]*) HTTP/1\.([01])")
# Blanks around the value are stripped afterwards: a pattern that does it backtracks cubically.
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
# Headers that must not be repeated: two values could be interpreted differently.
_SINGLE: Final = frozenset(
    [
        "authorization",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "origin",
        "sec-fetch-dest",
        "sec-fetch-site",
        "transfer-encoding",
        "x-clickhouse-key",
        "x-clickhouse-user",
    ]
)


class HeadError(ValueError):
    """A request is malformed; `status` and the text, one sentence, are the response. method: its
    method, if it could be parsed."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.method = "GET"


@dataclass(frozen=True)
class Head:
    """A request without its body. has_body: whether a body follows that must be read."""

    method: str
    target: str
    version: str
    headers: Message
    has_body: bool

    @property
    def keeps_alive(self) -> bool:
        """Whether another request may follow on this connection."""
        asked = self.headers.get("Connection", "").lower()
        return "keep-alive" in asked if self.version == "HTTP/1.0" else "close" not in asked


def read_head(stream: io.BufferedIOBase) -> Head | None:
    """The head of the next request; None if the client has closed. Raises HeadError."""
    first = stream.readline(MAX_TARGET_BYTES + 1)
    if not first:
        return None
    if len(first) > MAX_TARGET_BYTES:
        raise HeadError(HTTPStatus.REQUEST_URI_TOO_LONG, "The target is too long.")
    found = _REQUEST_LINE.fullmatch(_line(first))
    if found is None:
        raise HeadError(HTTPStatus.BAD_REQUEST, "The first line is not a request line.")
    method, version = found[1].decode(), f"HTTP/1.{found[3].decode()}"
    try:
        headers = _headers(stream)
        head = Head(method, found[2].decode(), version, headers, _has_body(headers))
        _check(head)
    except HeadError as error:
        error.method = method
        raise
    return head


def _headers(stream: io.BufferedIOBase) -> Message:
    headers, names, size = Message(), set[str](), 0
    while (raw := stream.readline(MAX_LINE_BYTES + 1)) != b"\r\n":
        size += len(raw)
        if len(raw) > MAX_LINE_BYTES or size > MAX_HEAD_BYTES or len(headers) >= MAX_HEADERS:
            raise HeadError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers are too long.")
        found = _HEADER.fullmatch(_line(raw))
        if found is None:
            raise HeadError(HTTPStatus.BAD_REQUEST, "A header line is malformed.")
        name = found[1].decode()
        if name.lower() in names & _SINGLE:
            raise HeadError(HTTPStatus.BAD_REQUEST, f"There is more than one header {name}.")
        names.add(name.lower())
        headers[name] = found[2].strip(b" \t").decode("latin-1")
    return headers


def _line(raw: bytes) -> bytes:
    if not raw.endswith(b"\r\n"):
        raise HeadError(HTTPStatus.BAD_REQUEST, "A line does not end with CRLF.")
    return raw[:-2]


def _has_body(headers: Message) -> bool:
    coding, length = headers.get("Transfer-Encoding"), headers.get("Content-Length")
    if coding is not None and length is not None:
        raise HeadError(HTTPStatus.BAD_REQUEST, "A body has a length or chunks, not both.")
    if coding is not None and coding.lower() != "chunked":
        raise HeadError(HTTPStatus.BAD_REQUEST, "The only supported transfer coding is chunked.")
    if length is not None and not _LENGTH.fullmatch(length):
        raise HeadError(HTTPStatus.BAD_REQUEST, "The Content-Length is invalid.")
    return coding is not None or int(length or 0) > 0


def _check(head: Head) -> None:
    if "Host" not in head.headers:
        raise HeadError(HTTPStatus.BAD_REQUEST, "A Host header is required.")
    if head.method not in METHODS:
        raise HeadError(HTTPStatus.NOT_IMPLEMENTED, f"Only {', '.join(METHODS)} are supported.")
    if head.has_body and head.method != "POST":
        raise HeadError(HTTPStatus.BAD_REQUEST, f"A {head.method} must not have a body.")
    if "Transfer-Encoding" in head.headers and head.version == "HTTP/1.0":
        raise HeadError(HTTPStatus.BAD_REQUEST, "HTTP/1.0 does not support chunked bodies.")
    if head.headers.get("Expect", "100-continue").lower() != "100-continue":
        raise HeadError(HTTPStatus.EXPECTATION_FAILED, "Only 100-continue is supported as Expect.")
