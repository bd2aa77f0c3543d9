"""The first query of clickhouse-go over HTTP, and thus of Grafana's ClickHouse plugin. Pure.

It asks for names and versions in format Native as its own protocol version has it, with block
information and a serialization mark per column, which the embedded engine does not write. Told
that the server's revision is 0, it reads the plain Native blocks of every later answer.
"""

import re
import struct

HELLO = re.compile(
    r"\s*SELECT\s+displayName\(\),\s*version\(\),\s*revision\(\),\s*timezone\(\)\s*;?\s*", re.I
)
WITH_SERIALIZATION_MARK = 54_454
_BLOCK_INFO = bytes([1, 0, 2, 0xFF, 0xFF, 0xFF, 0xFF, 0])  # no overflows; bucket -1; end


def is_hello(text: str, output_format: str, protocol_version: int) -> bool:
    """Whether a query is that first one. protocol_version: 0 where the client says none."""
    return output_format == "Native" and protocol_version > 0 and bool(HELLO.fullmatch(text))


def hello(display_name: str, version: str, protocol_version: int) -> bytes:
    """The answer: one block of one row, revision 0, in the client's protocol version."""
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
    """A variable-length integer: seven bits a byte, the lowest first."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(written) + bytes([value])
