"""Values of one topic to Arrow columns, in batches.

A whole batch is decoded at once; when that fails, its halves, and so on, so that one bad record
costs only itself. What cannot be decoded comes back with its reason, for the dead letters.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyruhvro

from schemas import codec
from services.evaluator.columns import Bools, Ints

_HEADER_FIELDS = {"header_marker": "long", "header_fingerprint": "double"}
_MARKER_AS_LONG = -98


@dataclass(frozen=True)
class Decoded:
    """Rows of one record type. places: their positions in the batch; columns: as the schema says,
    times as Arrow timestamps, in the same order; sizes: bytes of each value."""

    record: str
    places: Ints
    columns: pa.RecordBatch
    sizes: Ints

    def __len__(self) -> int:
        return len(self.places)

    def ints(self, name: str) -> Ints:
        """A non-null integer or timestamp column as int64, in the schema's unit."""
        column = self.columns.column(name)
        return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)

    def floats(self, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """A numeric column as float64; null becomes NaN."""
        column = self.columns.column(name).cast(pa.float64())
        return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)

    def present(self, name: str) -> Bools:
        """Where a column is not null."""
        return np.asarray(self.columns.column(name).is_valid().to_numpy(zero_copy_only=False), bool)

    def of_run(self, run_id: str) -> "Decoded":
        """The rows that belong to a run."""
        mask: Bools = pc.equal(self.columns.column("run_id"), run_id).to_numpy(zero_copy_only=False)
        if mask.all():
            return self
        columns = self.columns.filter(pa.array(mask))
        return Decoded(self.record, self.places[mask], columns, self.sizes[mask])


@dataclass(frozen=True)
class Refused:
    """A record that could not be decoded: its place in the batch and the reason."""

    place: int
    reason: str


def decode(
    records: tuple[str, ...], values: list[bytes | None]
) -> tuple[list[Decoded], list[Refused]]:
    """Decode values, each of which should be one of `records` in its newest version."""
    if len(records) == 1 and len(values):
        try:
            return [_decoded(records[0], np.arange(len(values)), values)], []  # type: ignore[arg-type]
        except (TypeError, ValueError):  # something in it is no record: find out what
            pass
    places: dict[bytes, list[int]] = {codec.header(record): [] for record in records}
    refused: list[Refused] = []
    for place, value in enumerate(values):
        mine = places.get(value[: codec.HEADER_BYTES]) if value is not None else None
        if mine is None:
            refused.append(Refused(place, _why(records, value)))
        else:
            mine.append(place)
    decoded = []
    for record in records:
        rows = np.array(places[codec.header(record)], np.int64)
        if len(rows):
            decoded.append(_decode_record(record, rows, values, refused))
    return decoded, refused


def _decode_record(
    record: str, places: Ints, values: list[bytes | None], refused: list[Refused]
) -> Decoded:
    data: list[bytes] = [values[place] for place in places]  # type: ignore[misc]
    try:
        return _decoded(record, places, data)
    except ValueError:
        keep: list[int] = []
        for row, reason in _whole_or_not(record, data, range(len(data))):
            if reason is None:
                keep.append(row)
            else:
                refused.append(Refused(int(places[row]), reason))
        return _decoded(record, places[keep], [data[row] for row in keep])


def _decoded(record: str, places: Ints, values: list[bytes]) -> Decoded:
    """Decode whole values. Raises ValueError, or TypeError for None, unless every one is exactly
    one record.

    The header is read as if it were the record's first fields, so that values need no cutting. The
    batch decoder alone would take text that is not UTF-8, bytes after the end of a record and
    integers that are too long; what it makes of them does not encode to the same bytes.
    """
    schema = _with_header(record)
    batch = pyruhvro.deserialize_array(values, schema)
    if len(values):
        batch.validate(full=True)
        (again,) = pyruhvro.serialize_record_batch(batch, schema, 1)
        if not again.equals(pa.array(values, again.type)):
            raise ValueError("not encoded as the codec does")
        if not _all_have_header(record, batch):
            raise ValueError("another schema's header")
        offsets = np.frombuffer(again.buffers()[1], np.int32, len(values) + 1, 4 * again.offset)
        sizes = np.diff(offsets).astype(np.int64)
    else:
        sizes = np.empty(0, np.int64)
    return Decoded(record, places, batch.select(batch.schema.names[len(_HEADER_FIELDS) :]), sizes)


def _all_have_header(record: str, batch: pa.RecordBatch) -> bool:
    marker, fingerprint = (batch.column(name).to_numpy() for name in _HEADER_FIELDS)
    wanted = np.frombuffer(codec.header(record)[len(codec.MARKER) :], "<i8")
    return bool((marker == _MARKER_AS_LONG).all() and (fingerprint.view("<i8") == wanted).all())


@cache
def _with_header(record: str) -> str:
    """The schema of a record with the 10 bytes before it as its first fields.

    The batch decoder has no fields of fixed size. But the marker C3 01 is how Avro writes the
    long -98, and the 8 bytes of the fingerprint are a double, whatever number they make.
    """
    schema = json.loads(codec.schema_json(record))
    header = [{"name": name, "type": kind} for name, kind in _HEADER_FIELDS.items()]
    return json.dumps(schema | {"fields": header + schema["fields"]})


def _whole_or_not(record: str, data: list[bytes], rows: range) -> Iterator[tuple[int, str | None]]:
    """Each row with None when it decodes, else the reason."""
    try:
        _decoded(record, np.arange(len(rows)), data[rows.start : rows.stop])
    except ValueError as error:
        if len(rows) == 1:
            yield rows.start, _reason(record, data[rows.start], error)
            return
        half = len(rows) // 2
        yield from _whole_or_not(record, data, rows[:half])
        yield from _whole_or_not(record, data, rows[half:])
    else:
        yield from ((row, None) for row in rows)


def _reason(record: str, value: bytes, error: ValueError) -> str:
    try:
        codec.decode(value)
    except codec.DecodeError as refusal:
        return str(refusal)
    return f"{record} does not decode: {codec.said_by(error)}"


def _why(records: tuple[str, ...], value: bytes | None) -> str:
    try:
        found = codec.identify(value)
    except codec.DecodeError as error:
        return str(error)
    return f"expected {' or '.join(records)}, found {found.name} v{found.version}"
