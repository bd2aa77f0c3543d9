"""Bodies of HTTP requests and responses: transfer chunks and content encodings. Bounded."""

import gzip
import io
import re
import zlib
from email.message import Message
from typing import Final

import pyarrow as pa

MIN_COMPRESSED_BYTES: Final = 1024
_LINE_BYTES: Final = 256
_LENGTH_DIGITS: Final = 18
_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t -~]*)?\r\n")


class BodyError(ValueError):
    """A body is too long or malformed; the text says which, in one sentence."""


def read_body(stream: io.BufferedIOBase, headers: Message, limit: int) -> bytes:
    """The decoded body of a request, at most `limit` bytes. Raises BodyError."""
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        raw = _chunks(stream, limit)
    else:
        length = headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            raise BodyError("A Content-Length is required.")
        if len(length) > _LENGTH_DIGITS or int(length) > limit:
            raise BodyError(f"The body is longer than {limit} bytes.")
        raw = _whole(stream, int(length))
    return _decoded(raw, headers.get("Content-Encoding", "").lower(), limit)


def compressed(data: bytes, headers: Message, wanted: bool) -> tuple[bytes, str]:
    """A response body and its Content-Encoding: gzip if requested and accepted by the client."""
    accepted = headers.get("Accept-Encoding", "")
    if not wanted or len(data) < MIN_COMPRESSED_BYTES or "gzip" not in accepted:
        return data, ""
    return gzip.compress(data, compresslevel=1), "gzip"


def _chunks(stream: io.BufferedIOBase, limit: int) -> bytes:
    found = bytearray()
    while True:
        line = _CHUNK_LINE.fullmatch(stream.readline(_LINE_BYTES))
        if line is None:
            raise BodyError("The chunked body is malformed.")
        size = int(line[1], 16)
        if len(found) + size > limit:
            raise BodyError(f"The body is longer than {limit} bytes.")
        found += _whole(stream, size)
        if stream.readline(_LINE_BYTES) != b"\r\n":  # trailers are rejected as well
            raise BodyError("The chunked body is malformed.")
        if size == 0:
            return bytes(found)


def _whole(stream: io.BufferedIOBase, size: int) -> bytes:
    """Exactly `size` bytes. A truncated query could be a different one, a truncated INSERT loses
    rows."""
    data = stream.read(size)
    if len(data) < size:
        raise BodyError("The body is incomplete.")
    return data


def _decoded(raw: bytes, encoding: str, limit: int) -> bytes:
    if encoding in ("", "identity"):
        return raw
    try:
        if encoding == "deflate":
            data = zlib.decompressobj().decompress(raw, limit + 1)
        elif encoding in ("gzip", "zstd", "lz4"):
            with pa.input_stream(pa.BufferReader(raw), compression=encoding) as stream:
                data = stream.read(limit + 1)
        else:
            raise BodyError(f"The encoding {encoding} is not supported.")
    except (zlib.error, OSError, pa.ArrowException) as error:
        raise BodyError(f"The body is not valid {encoding}.") from error
    if len(data) > limit:
        raise BodyError(f"The body is longer than {limit} bytes.")
    return bytes(data)
