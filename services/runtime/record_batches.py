"""Headers of record batches, as a fetch has them and a log file (format 2,
https://kafka.apache.org/documentation/#recordbatch); and of transaction markers what they say.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_AT = 12  # bytes before those that a batch's length counts
_MAGIC = 2
_IS_APPEND_TIME, _IS_TRANSACTIONAL, _IS_CONTROL = 1 << 3, 1 << 4, 1 << 5
_COMMIT = 1


class Batch(NamedTuple):
    """Header of a record batch. appended_ms: its time. commits: of the marker that ends a
    transaction, whether it commits it; None for records. is_append_time: whether its time is
    LogAppendTime. size: bytes of the whole batch."""

    offset: int
    next_offset: int
    records: int
    appended_ms: int
    producer: int
    is_transactional: bool
    commits: bool | None
    is_append_time: bool = True
    size: int = 0


class BatchFormatError(ValueError):
    """Bytes that are not a record batch of format 2."""


def batches(data: bytes | memoryview) -> Iterable[Batch]:
    """The batches in a fetch response, which may end within one. Raises BatchFormatError."""
    at = 0
    while at + _HEADER.size <= len(data):
        (offset, length, _, magic, _, attributes, last, _, appended_ms, producer, _, _, records) = (
            _HEADER.unpack_from(data, at)
        )
        end = at + _LENGTH_AT + length
        if magic != _MAGIC or end < at + _HEADER.size or last < 0:
            raise BatchFormatError(f"no record batch of format {_MAGIC} at offset {offset}")
        if end > len(data):
            return
        commits = None
        if attributes & _IS_CONTROL:  # without a record after compaction: it has nothing to end
            commits = not records or _is_commit(data[at + _HEADER.size : end])
        yield Batch(
            offset,
            offset + last + 1,
            records,
            appended_ms,
            producer,
            bool(attributes & _IS_TRANSACTIONAL),
            commits,
            bool(attributes & _IS_APPEND_TIME),
            end - at,
        )
        at = end


def _is_commit(record: bytes | memoryview) -> bool:
    """Whether the record of a control batch commits: its key holds a version and a type, 16 bits
    each."""
    at = 0
    for _ in ("length", "attributes", "delta of time", "delta of offset", "length of the key"):
        at = _after_varint(record, at)
    key = record[at : at + 4]
    if len(key) < 4:
        raise BatchFormatError("a transaction marker is cut off")
    return bool(struct.unpack(">hh", key)[1] == _COMMIT)


def _after_varint(data: bytes | memoryview, at: int) -> int:
    while at < len(data) and data[at] & 0x80:
        at += 1
    return at + 1
