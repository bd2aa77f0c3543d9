"""Bodies of requests and answers as HTTP carries them: chunks and encodings. Bounded."""

import gzip
import io
import zlib
from email.message import Message
from typing import Final

import pyarrow as pa

MIN_COMPRESSED_BYTES: Final = 1024
_LINE_BYTES: Final = 256


class BodyError(ValueError):
    """A body is too long or broken; the text says which, in one sentence."""


def read_body(stream: io.BufferedIOBase, headers: Message, limit: int) -> bytes:
    """The body of a request, decoded, at most `limit` bytes of it. Raises BodyError."""
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        raw = _chunks(stream, limit)
    else:
        length = headers.get("Content-Length", "")
        if not length.isdecimal():
            raise BodyError("A Content-Length is needed.")
        if int(length) > limit:
            raise BodyError(f"The body is longer than {limit} bytes.")
        raw = stream.read(int(length))
    return _decoded(raw, headers.get("Content-Encoding", "").lower(), limit)


def compressed(data: bytes, headers: Message, wanted: bool) -> tuple[bytes, str]:
    """An answer's body and its Content-Encoding: gzip where the client wants and takes it."""
    accepted = headers.get("Accept-Encoding", "")
    if not wanted or len(data) < MIN_COMPRESSED_BYTES or "gzip" not in accepted:
        return data, ""
    return gzip.compress(data, compresslevel=1), "gzip"


def _chunks(stream: io.BufferedIOBase, limit: int) -> bytes:
    found = bytearray()
    while True:
        line = stream.readline(_LINE_BYTES).split(b";")[0].strip()
        try:
            size = int(line, 16)
        except ValueError as error:
            raise BodyError("The body is not in chunks as announced.") from error
        if len(found) + size > limit:
            raise BodyError(f"The body is longer than {limit} bytes.")
        found += stream.read(size)
        stream.readline(_LINE_BYTES)
        if size == 0:
            return bytes(found)


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
            raise BodyError(f"The encoding {encoding} is not understood.")
    except (zlib.error, OSError, pa.ArrowException) as error:
        raise BodyError(f"The body is not {encoding} as announced.") from error
    if len(data) > limit:
        raise BodyError(f"The body is longer than {limit} bytes.")
    return bytes(data)
