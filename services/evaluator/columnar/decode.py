"""Decodes values of one topic to Arrow columns, in batches.

A whole batch of Avro is decoded at once. If that fails, its halves are, and so on, so a bad record
costs only itself. Records that cannot be decoded are returned with the reason, for the dead
letters. JSON is decoded one record at a time, which is much slower.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyruhvro

from schemas.codec import HEADER_BYTES, DecodeError, RecordSchemas, decode_json, said_by
from schemas.columnar import decode_columns
from services.evaluator.columnar.columns import UNKNOWN, Bools, Ints

Value = TypeVar("Value")


def _whole(column: pa.Array) -> pa.Array:
    """A column with times as integers; Arrow casts those of 32 bits to 32-bit integers only."""
    if not pa.types.is_temporal(column.type):
        return column
    return column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())


@dataclass(frozen=True)
class Decoded:
    """Rows of one record type. places: their positions in the batch. columns: as in the schema,
    times as Arrow timestamps, in the same order. sizes: bytes of each value."""

    record: str
    places: Ints
    columns: pa.RecordBatch
    sizes: Ints

    def __len__(self) -> int:
        return len(self.places)

    def ints(self, name: str, null: int = 0) -> Ints:
        """A column of integers, times or booleans as int64, in the schema's unit, with a value in
        place of null."""
        column = _whole(self.columns.column(name)).cast(pa.int64())
        if column.null_count:
            column = column.fill_null(null)
        return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)

    def floats(self, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """A numeric column as float64; null becomes NaN."""
        column = self.columns.column(name).cast(pa.float64())
        return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)

    def coded(self, name: str) -> pa.Array:
        """A column to be coded: text unchanged, times as integers."""
        return _whole(self.columns.column(name))

    def nulls(self, name: str) -> Bools | None:
        """Which cells of a column are null; None if there are no nulls."""
        column = self.columns.column(name)
        if not column.null_count:
            return None
        return np.asarray(column.is_null().to_numpy(zero_copy_only=False), bool)

    def of_run(self, run_id: str) -> "Decoded":
        """The rows of a run."""
        is_own = pc.fill_null(pc.equal(self.columns.column("run_id"), run_id), False)
        mask: Bools = is_own.to_numpy(zero_copy_only=False)
        if mask.all():
            return self
        columns = self.columns.filter(pa.array(mask))
        return Decoded(self.record, self.places[mask], columns, self.sizes[mask])


@dataclass(frozen=True)
class UndecodedRecord:
    """A record that could not be decoded: its position in the batch and the reason."""

    place: int
    reason: str


def at_places(values: list[Value], places: Ints) -> list[Value]:
    """The values at these positions, in order; `values` itself if they are all of them."""
    if len(places) == len(values):
        return values
    return list(map(values.__getitem__, places.tolist()))


Decoder = Callable[
    [RecordSchemas, tuple[str, ...], list[bytes | None]],
    tuple[list[Decoded], list[UndecodedRecord]],
]


def input_decoder(wire_format: str) -> Decoder:
    """The decoder of input records and their raw copies, in `avro` or `json`."""
    return decode_json_values if wire_format == "json" else decode


def decode(
    codec: RecordSchemas, records: tuple[str, ...], values: list[bytes | None]
) -> tuple[list[Decoded], list[UndecodedRecord]]:
    """Decode values, each of which must be one of `records` in its newest version."""
    if len(records) == 1 and len(values):
        every = np.arange(len(values))
        try:
            return [_decoded(codec, records[0], every, values)], []  # type: ignore[arg-type]
        except (TypeError, ValueError):  # at least one value is invalid: find out which
            pass
    kinds = _kinds(codec, records, values)
    refused = [
        UndecodedRecord(place, _why(codec, records, values[place]))
        for place in np.flatnonzero(kinds == UNKNOWN).tolist()
    ]
    decoded = []
    for kind, record in enumerate(records):
        rows = np.flatnonzero(kinds == kind)
        if len(rows):
            decoded.append(_decode_record(codec, record, rows, values, refused))
    return decoded, refused


def _kinds(codec: RecordSchemas, records: tuple[str, ...], values: list[bytes | None]) -> Ints:
    """Which record each value is, by its header, as an index into `records`."""
    headers = pc.binary_slice(pa.array(values, pa.binary()), 0, HEADER_BYTES)
    wanted = pa.array([codec.header(record) for record in records], pa.binary())
    result = pc.index_in(headers, value_set=wanted).fill_null(UNKNOWN)
    return np.asarray(result.to_numpy(zero_copy_only=False), np.int64)


def _decode_record(
    codec: RecordSchemas,
    record: str,
    places: Ints,
    values: list[bytes | None],
    refused: list[UndecodedRecord],
) -> Decoded:
    data: list[bytes] = at_places(values, places)  # type: ignore[arg-type]
    try:
        return _decoded(codec, record, places, data)
    except ValueError:
        keep: list[int] = []
        for row, reason in _whole_or_not(codec, record, data, range(len(data))):
            if reason is None:
                keep.append(row)
            else:
                refused.append(UndecodedRecord(int(places[row]), reason))
        return _decoded(codec, record, places[keep], [data[row] for row in keep])


def _decoded(codec: RecordSchemas, record: str, places: Ints, values: list[bytes]) -> Decoded:
    """Decode whole values. Raises ValueError, or TypeError for None, unless every value is exactly
    one record."""
    return Decoded(record, places, *decode_columns(codec, record, values))


def _whole_or_not(
    codec: RecordSchemas, record: str, data: list[bytes], rows: range
) -> Iterator[tuple[int, str | None]]:
    """For each row, None if it decodes, else the reason."""
    try:
        _decoded(codec, record, np.arange(len(rows)), data[rows.start : rows.stop])
    except ValueError as error:
        if len(rows) == 1:
            yield rows.start, _reason(codec, record, data[rows.start], error)
            return
        half = len(rows) // 2
        yield from _whole_or_not(codec, record, data, rows[:half])
        yield from _whole_or_not(codec, record, data, rows[half:])
    else:
        yield from ((row, None) for row in rows)


def _reason(codec: RecordSchemas, record: str, value: bytes, error: ValueError) -> str:
    try:
        codec.decode(value)
    except DecodeError as refusal:
        return str(refusal)
    return f"{record} cannot be decoded: {said_by(error)}"


def _why(codec: RecordSchemas, records: tuple[str, ...], value: bytes | None) -> str:
    try:
        result = codec.identify(value)
    except DecodeError as error:
        return str(error)
    return f"expected {' or '.join(records)}, found {result.name} v{result.version}"


def decode_json_values(
    codec: RecordSchemas, records: tuple[str, ...], values: list[bytes | None]
) -> tuple[list[Decoded], list[UndecodedRecord]]:
    """Decode values, each of which must be one of `records`. If there are several, the record is
    the one of which the value has a member that no other record has, else the first without such
    members."""
    members = _own_members(tuple(codec.schema_json(record) for record in records))
    fallback = next((r for r, own in zip(records, members, strict=True) if not own), records[0])
    rows: dict[str, list[tuple[int, dict[str, object]]]] = {record: [] for record in records}
    refused = []
    for place, value in enumerate(values):
        named = zip(records, members, strict=True)
        has = (r for r, own in named if any(member in (value or b"") for member in own))
        record = next(has, fallback)
        try:
            rows[record].append((place, decode_json(record, value, codec)))
        except DecodeError as error:
            refused.append(UndecodedRecord(place, str(error)))
    decoded = []
    for record, result in rows.items():
        if result:
            places = np.array([place for place, _ in result], np.int64)
            sizes = np.array([len(values[place] or b"") for place in places], np.int64)
            batch = _batch(codec.schema_json(record), result)
            decoded.append(Decoded(record, places, batch, sizes))
    return decoded, refused


@cache
def _own_members(schemas: tuple[str, ...]) -> tuple[tuple[bytes, ...], ...]:
    """For each record, the members that none of the other records has, as they appear in JSON."""
    fields = [{field["name"] for field in json.loads(schema)["fields"]} for schema in schemas]
    return tuple(
        tuple(
            json.dumps(name).encode()
            for name in sorted(own.difference(*(each for each in fields if each is not own)))
        )
        for own in fields
    )


def _batch(schema_json: str, records: list[tuple[int, dict[str, object]]]) -> pa.RecordBatch:
    schema = pyruhvro.avro_to_arrow_schema(schema_json)
    columns = []
    for field in schema:
        is_time = pa.types.is_temporal(field.type)
        plain = _whole(pa.array([], field.type)).type if is_time else field.type
        column = pa.array([fields[field.name] for _, fields in records], plain)
        columns.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
