"""ClickHouse's own framing of compressed data, for `compress=1` and `decompress=1`. Pure.

Each block is a checksum (CityHash128 1.0.2 of everything after it, 16 bytes), a method (1 byte),
the size of the block without its checksum and the size of its data (4 bytes each), and the data.
https://clickhouse.com/docs/native-protocol/compression
"""

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


class BlockError(ValueError):
    """Data in this framing are malformed or too long; the text says which, in one sentence."""


def framed(data: bytes) -> Iterator[bytes]:
    """Data as blocks compressed by LZ4, as a server sends them."""
    view = memoryview(data)
    for begin in range(0, len(view), BLOCK_BYTES):
        piece = view[begin : begin + BLOCK_BYTES]
        packed = lz4.block.compress(piece, store_size=False)
        block = _HEAD.pack(LZ4, _HEAD.size + len(packed), len(piece)) + packed
        yield _checksum(block) + block


def unframed(data: bytes, limit: int) -> bytes:
    """The data of whole blocks, at most `limit` bytes. Raises BlockError.

    No more memory is taken than the limit, whatever sizes the blocks claim.
    """
    found, at = bytearray(), 0
    while at < len(data):
        head = at + _CHECKSUM.size
        if len(data) < head + _HEAD.size:
            raise BlockError("A compressed block is incomplete.")
        method, size, length = _HEAD.unpack_from(data, head)
        block = data[head : head + size]
        if size < _HEAD.size or len(block) < size:
            raise BlockError("The size of a compressed block is wrong.")
        if len(found) + length > limit:
            raise BlockError(f"The body is longer than {limit} bytes.")
        if _checksum(block) != data[at:head]:
            raise BlockError("The checksum of a compressed block is wrong.")
        found += _unpacked(method, block[_HEAD.size :], length)
        at = head + size
    return bytes(found)


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
