"""ClickHouse's own binary forms: framed compressed data, and one answer in the format Native. Pure.

Compressed data is framed for `compress=1` and `decompress=1`.Each block is a checksum (CityHash128
1.0.2 of everything after it, 16 bytes), a method (1 byte), the size of the block without its
checksum and the size of its data (4 bytes each), and the data.
https://clickhouse.com/docs/native-protocol/compression

The first query of clickhouse-go over HTTP, which Grafana's ClickHouse plugin uses, requests names
and versions in the format Native of its own protocol version, with block information and a
serialization flag per column. The embedded engine does not write these. If the answer gives the
server's revision as 0, the client reads all later answers as plain Native blocks.
"""

import re
import struct
from collections.abc import Iterator
from typing import Final

import lz4.block
import pyarrow as pa
from clickhouse_cityhash.cityhash import CityHash128

NONE, LZ4, ZSTD = 0x02, 0x82, 0x90
BLOCK_BYTES: Final = 1024 * 1024
_CHECKSUM: Final = struct.Struct("<QQ")
_HEAD: Final = struct.Struct("<BII")
_LOW: Final = 2**64 - 1
HELLO = re.compile(
    r"\s*SELECT\s+displayName\(\),\s*version\(\),\s*revision\(\),\s*timezone\(\)\s*;?\s*", re.I
)
WITH_SERIALIZATION_MARK = 54_454
_BLOCK_INFO = bytes([1, 0, 2, 0xFF, 0xFF, 0xFF, 0xFF, 0])  # no overflows; bucket -1; end


class BlockError(ValueError):
    """Data in this framing are malformed or too long; the text says which, in one sentence."""


def framed(data: bytes, *, is_readable: bool = False) -> Iterator[bytes]:
    """Data as blocks compressed by LZ4, as a server sends them. is_readable: LZ4 without
    references, so that the data stand in the block: clients of JDBC look for the text of an
    exception in a body that they have not decompressed."""
    view = memoryview(data)
    for begin in range(0, len(view), BLOCK_BYTES):
        piece = view[begin : begin + BLOCK_BYTES]
        packed = (
            _literal(bytes(piece)) if is_readable else lz4.block.compress(piece, store_size=False)
        )
        block = _HEAD.pack(LZ4, _HEAD.size + len(packed), len(piece)) + packed
        yield _checksum(block) + block


def _literal(data: bytes) -> bytes:
    """One LZ4 sequence of literals: their number in the upper half of a byte, what exceeds 15 in
    bytes of up to 255, the last of which is less."""
    more = len(data) - 15
    if more < 0:
        return bytes([len(data) << 4]) + data
    return bytes([0xF0, *[255] * (more // 255), more % 255]) + data


def unframed(data: bytes, limit: int) -> bytes:
    """The data of whole blocks, at most `limit` bytes. Raises BlockError.

    No more memory is taken than the limit, whatever sizes the blocks claim.
    """
    result, at = bytearray(), 0
    while at < len(data):
        head = at + _CHECKSUM.size
        if len(data) < head + _HEAD.size:
            raise BlockError("A compressed block is incomplete.")
        method, size, length = _HEAD.unpack_from(data, head)
        block = data[head : head + size]
        if size < _HEAD.size or len(block) < size:
            raise BlockError("The size of a compressed block is wrong.")
        if len(result) + length > limit:
            raise BlockError(f"The body is longer than {limit} bytes.")
        if _checksum(block) != data[at:head]:
            raise BlockError("The checksum of a compressed block is wrong.")
        result += _unpacked(method, block[_HEAD.size :], length)
        at = head + size
    return bytes(result)


def _unpacked(method: int, packed: bytes, length: int) -> bytes:
    try:
        if method == NONE:
            data = packed
        elif length == 0:
            data = b""
        elif method == LZ4:
            # Arrow's codec would not tell that the data are shorter than the block claims.
            data = lz4.block.decompress(packed, uncompressed_size=length)
        elif method == ZSTD:
            data = pa.Codec("zstd").decompress(packed, length, asbytes=True)
        else:
            raise BlockError(f"The compression method {method:#x} is not supported.")
    except (lz4.block.LZ4BlockError, OSError, pa.ArrowException) as error:
        raise BlockError("A compressed block cannot be decompressed.") from error
    if len(data) != length:
        raise BlockError("The size of a compressed block is wrong.")
    return bytes(data)


def _checksum(block: bytes) -> bytes:
    value = CityHash128(block)
    return _CHECKSUM.pack(value >> 64, value & _LOW)


def is_hello(text: str, output_format: str, protocol_version: int) -> bool:
    """Whether a query is clickhouse-go's first one. protocol_version: 0 if the client sends
    none."""
    return output_format == "Native" and protocol_version > 0 and bool(HELLO.fullmatch(text))


def hello(display_name: str, version: str, protocol_version: int) -> bytes:
    """The answer: one block of one row with revision 0, in the client's protocol version."""
    mark = b"\0" if protocol_version >= WITH_SERIALIZATION_MARK else b""
    columns = (
        ("displayName()", "String", _text(display_name)),
        ("version()", "String", _text(version)),
        ("revision()", "UInt32", struct.pack("<I", 0)),
        ("timezone()", "String", _text("UTC")),
    )
    written = [_text(name) + _text(kind) + mark + value for name, kind, value in columns]
    return _BLOCK_INFO + _number(len(columns)) + _number(1) + b"".join(written)


def _text(value: str) -> bytes:
    data = value.encode()
    return _number(len(data)) + data


def _number(value: int) -> bytes:
    """A variable-length integer: seven bits per byte, lowest first."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(written) + bytes([value])
