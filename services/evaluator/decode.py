"""Values of one topic to Arrow columns, in batches.

A whole batch is decoded at once; when that fails, its halves, and so on, so that one bad record
costs only itself. What cannot be decoded comes back with its reason, for the dead letters.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyruhvro

from schemas import codec
from services.evaluator.columns import Bools, Ints


@dataclass(frozen=True)
class Decoded:
    """Rows of one record type. places: their positions in the batch; columns: as the schema says,
    times as Arrow timestamps, in the same order."""

    record: str
    places: Ints
    columns: pa.RecordBatch

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
        return Decoded(self.record, self.places[mask], self.columns.filter(pa.array(mask)))


@dataclass(frozen=True)
class Refused:
    """A record that could not be decoded: its place in the batch and the reason."""

    place: int
    reason: str


def decode(
    records: tuple[str, ...], values: list[bytes | None]
) -> tuple[list[Decoded], list[Refused]]:
    """Decode values, each of which should be one of `records` in its newest version."""
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
    data = [values[place][codec.HEADER_BYTES :] for place in places]  # type: ignore[index]
    try:
        return Decoded(record, places, _batch(record, data))
    except ValueError:
        keep: list[int] = []
        for row, reason in _whole_or_not(record, data, range(len(data))):
            if reason is None:
                keep.append(row)
            else:
                refused.append(Refused(int(places[row]), reason))
        return Decoded(record, places[keep], _batch(record, [data[row] for row in keep]))


def _batch(record: str, data: list[bytes]) -> pa.RecordBatch:
    """Decode datums. Raises ValueError unless every one is exactly one record.

    The batch decoder alone would take text that is not UTF-8, bytes after the end of a record and
    integers that are too long; what it makes of them does not encode to the same bytes.
    """
    batch = pyruhvro.deserialize_array(data, codec.schema_json(record))
    if len(data):
        batch.validate(full=True)
        (again,) = pyruhvro.serialize_record_batch(batch, codec.schema_json(record), 1)
        if again.to_pylist() != data:
            raise ValueError("not encoded as the codec does")
    return batch


def _whole_or_not(record: str, data: list[bytes], rows: range) -> Iterator[tuple[int, str | None]]:
    """Each row with None when it decodes, else the reason."""
    try:
        _batch(record, data[rows.start : rows.stop])
    except ValueError as error:
        if len(rows) == 1:
            yield rows.start, _reason(record, data[rows.start], error)
            return
        half = len(rows) // 2
        yield from _whole_or_not(record, data, rows[:half])
        yield from _whole_or_not(record, data, rows[half:])
    else:
        yield from ((row, None) for row in rows)


def _reason(record: str, datum: bytes, error: ValueError) -> str:
    try:
        codec.decode(codec.header(record) + datum)
    except codec.DecodeError as refusal:
        return str(refusal)
    return f"{record} does not decode: {error}"


def _why(records: tuple[str, ...], value: bytes | None) -> str:
    try:
        found = codec.identify(value)
    except codec.DecodeError as error:
        return str(error)
    return f"expected {' or '.join(records)}, found {found.name} v{found.version}"
