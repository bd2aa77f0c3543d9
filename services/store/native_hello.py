"""Answers the first query of clickhouse-go over HTTP, which Grafana's ClickHouse plugin uses. Pure.

It requests names and versions in the format Native of its own protocol version, with block
information and a serialization flag per column. The embedded engine does not write these. If the
answer gives the server's revision as 0, the client reads all later answers as plain Native blocks.
"""

import re
import struct

HELLO = re.compile(
    r"\s*SELECT\s+displayName\(\),\s*version\(\),\s*revision\(\),\s*timezone\(\)\s*;?\s*", re.I
)
WITH_SERIALIZATION_MARK = 54_454
_BLOCK_INFO = bytes([1, 0, 2, 0xFF, 0xFF, 0xFF, 0xFF, 0])  # no overflows; bucket -1; end


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
