"""ClickHouse's own framing of compressed data."""

import struct

import pyarrow as pa
import pytest
from clickhouse_cityhash.cityhash import CityHash128

from services.store.api.native import BlockError, framed, unframed

pytestmark = pytest.mark.unit

LZ4, ZSTD, NONE = 0x82, 0x90, 0x02


def block(method: int, packed: bytes, length: int, size: int | None = None) -> bytes:
    head = struct.pack("<BII", method, len(packed) + 9 if size is None else size, length)
    value = CityHash128(head + packed)
    return struct.pack("<QQ", value >> 64, value & (2**64 - 1)) + head + packed


def test_a_block_of_clickhouse_is_read() -> None:
    """`SELECT 1 FORMAT RowBinary` with compress=1, as a server 26.9 answers it."""
    assert unframed(block(NONE, b"\x01", 1), 1) == b"\x01"
    assert unframed(block(LZ4, b"\x10\x01", 1), 1) == b"\x01"


@pytest.mark.parametrize("is_readable", [False, True])
@pytest.mark.parametrize(
    "size", [0, 1, 14, 15, 16, 269, 270, 271, 1024 * 1024, 1024 * 1024 + 1, 3_000_000]
)
def test_what_is_framed_can_be_read_again(size: int, is_readable: bool) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    blocks = list(framed(data, is_readable=is_readable))
    assert len(blocks) == -(-size // (1024 * 1024))
    assert unframed(b"".join(blocks), size) == data


def test_a_readable_block_shows_its_data_to_who_does_not_decompress_it() -> None:
    text = b"Timeout exceeded: elapsed 1000.067 ms, maximum: 1000 ms. (TIMEOUT_EXCEEDED)"
    assert text not in b"".join(framed(text))
    assert text in b"".join(framed(text, is_readable=True))


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (block(LZ4, b"\x10\x01", 2**32 - 1), "longer than 1000 bytes"),
        (block(LZ4, b"\x10\x01", 1001), "longer than 1000 bytes"),
        (block(NONE, b"x" * 600, 600) * 2, "longer than 1000 bytes"),
        (block(LZ4, b"\x10\x01", 2), "size|decompressed"),
        (block(LZ4, b"\xff" * 40, 900), "size|decompressed"),
        (block(LZ4, b"", 5), "size|decompressed"),
        (block(ZSTD, b"\x10\x01", 1), "decompressed"),
        (block(ZSTD, pa.Codec("zstd").compress(b"abc", asbytes=True), 2), "size|decompressed"),
        (block(ZSTD, pa.Codec("zstd").compress(b"abc", asbytes=True), 4), "size|decompressed"),
        (block(NONE, b"ab", 1), "size"),
        (block(NONE, b"ab", 3), "size"),
        (block(NONE, b"a", 1, size=2**32 - 1), "size"),
        (block(NONE, b"a", 1, size=8), "size"),
        (block(NONE, b"a", 1, size=0), "size"),
        (block(0x91, b"a", 1), "method 0x91"),
        (block(NONE, b"a", 1)[:-1], "size"),
        (block(NONE, b"a", 1)[:20], "incomplete"),
        (b"SELECT 1", "incomplete"),
        (b"\0" * 16 + block(NONE, b"a", 1)[16:], "checksum"),
    ],
)
def test_a_block_that_lies_is_refused_within_its_limit(sent: bytes, said: str) -> None:
    with pytest.raises(BlockError, match=said):
        unframed(sent, 1000)
