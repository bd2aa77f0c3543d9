"""Values of one topic to Arrow columns, in batches.

A whole batch is decoded at once; when that fails, record by record, so that one bad record costs
only itself. What cannot be decoded comes back with its reason, for the dead letters.
"""

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
        keep = [row for row in range(len(data)) if _is_whole(record, data, places, row, refused)]
        return Decoded(record, places[keep], _batch(record, [data[row] for row in keep]))


def _batch(record: str, data: list[bytes]) -> pa.RecordBatch:
    return pyruhvro.deserialize_array(data, codec.schema_json(record))


def _is_whole(
    record: str, data: list[bytes], places: Ints, row: int, refused: list[Refused]
) -> bool:
    try:
        codec.decode(codec.header(record) + data[row])
    except codec.DecodeError as error:
        refused.append(Refused(int(places[row]), str(error)))
        return False
    return True


def _why(records: tuple[str, ...], value: bytes | None) -> str:
    try:
        found = codec.identify(value)
    except codec.DecodeError as error:
        return str(error)
    return f"expected {' or '.join(records)}, found {found.name} v{found.version}"
