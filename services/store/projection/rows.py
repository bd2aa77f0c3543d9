"""Converts records of the bus to the rows of their tables. Pure: the same record gives the same
rows.

Histograms are decoded and exploded as columns, with the rows of `translate` and `blocks`, in about
a seventh of the CPU time. A batch is left to these if it is of another table, or contains an
invalid record, a record of an earlier schema, or a record without rows.

The rows of consecutive records are combined into blocks to insert. An insert of one block into one
partition of a table is atomic. Therefore a block never contains part of a record, nor rows of two
months, and blocks are in the order of the records. Whenever the process ends, the table contains
all records up to some offset and none after it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas import codec
from schemas.catalogue import DEAD_LETTER
from schemas.codec import said_by
from schemas.columnar import decode_columns
from schemas.events import check_finite
from services.store.tables import RawTable

YEAR_2100_MS = 4_102_444_800_000
Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


class UnusableError(ValueError):
    """A record cannot be converted to rows; the text is the reason in one sentence, for the dead
    letter."""


@dataclass(frozen=True)
class ConsumedRecord:
    """One consumed Kafka record. timestamp_ms: from the broker or the producer."""

    topic: str
    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = 0


@dataclass(frozen=True)
class TableRows:
    """Rows of one record, as columns in the order of the table's schema.

    columns: with one value per row if the table explodes an array, else a single value shared by
    all rows. count: number of rows; 0 for a histogram without values. month: as `toYYYYMM(time)`,
    the table partition of all rows.
    """

    columns: tuple[list[Any], ...]
    count: int
    month: int

    @property
    def place(self) -> tuple[int, int]:
        """Partition and offset of the record."""
        return self.columns[-2][0], self.columns[-1][0]


def project(table: RawTable, record: ConsumedRecord) -> TableRows:
    """Rows of one record of the table's topic. Raises UnusableError."""
    try:
        name, event = codec.decode(record.value)
        if name != table.record:
            raise UnusableError(f"{record.topic} carries {table.record}, not {name}.")
        check_finite(table.topic, event)
    except codec.DecodeError as error:
        raise UnusableError(f"{error}.") from error
    _check_times(table, event)
    _check_histogram(table, event)
    _check_lengths(table, event)
    return _rows(table, event, record)


def stand_in(table: RawTable, record: ConsumedRecord, reason: str, producer: str) -> TableRows:
    """Row of `dead_letter` for a record on the topic dead-letter that is not a valid dead letter.

    Another dead letter for it would cause an endless loop, so the table stores it unchanged, with
    the broker's time.
    """
    event = {
        "run_id": "",
        "time": min(max(record.timestamp_ms, 0), YEAR_2100_MS - 1),
        "producer": producer,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "reason": reason.encode(errors="replace").decode(),
        "key": record.key,
        "value": record.value,
    }
    return _rows(table, event, record)


def _check_times(table: RawTable, event: dict[str, Any]) -> None:
    for name in table.times:
        value = event[name]
        if value is not None and not 0 <= value < YEAR_2100_MS:
            raise UnusableError(f"{name} {value} is not between the years 1970 and 2100.")


def _check_histogram(table: RawTable, event: dict[str, Any]) -> None:
    for name in table.counts:
        if min(event[name], default=1) <= 0:
            raise UnusableError(f"{name} must be greater than 0.")
        for values in table.values:
            if len(event[values]) != len(event[name]):
                raise UnusableError(f"{values} and {name} must have the same length.")


def _check_lengths(table: RawTable, event: dict[str, Any]) -> None:
    needed = [name for name in table.explode if event[name] or name not in table.optional]
    if len({len(event[name]) for name in needed}) > 1:
        raise UnusableError(f"{', '.join(needed)} must have the same length.")


def _rows(table: RawTable, event: dict[str, Any], record: ConsumedRecord) -> TableRows:
    arrays = {column: event[name] for name, column in table.explode.items()}
    count = len(next(iter(arrays.values()))) if arrays else 1
    for name in table.optional:
        column = table.explode[name]
        arrays[column] = arrays[column] or [None] * count
    place = {
        "_topic": record.topic,
        "_partition": record.partition,
        "_offset": record.offset,
    }
    single = {**event, **place}
    columns = tuple(
        list(arrays[name]) if name in arrays else [single[name]] for name in table.columns.names
    )
    return TableRows(columns, count, _month(event["time"]))


def _month(time_ms: int) -> int:
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return moment.year * 100 + moment.month


def column_blocks(
    table: RawTable, records: Sequence[ConsumedRecord], max_rows: int
) -> list[pa.Table] | None:
    """The blocks of consecutive records of the table's topic; None if `translate` must decide.
    Records of one partition must be in offset order."""
    if not records or not (table.values and table.explode):  # no histograms
        return None
    try:
        values = [record.value for record in records]
        result, _sizes = decode_columns(codec.BUS, table.record, values)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    lengths = _lengths(table, result)
    if lengths is None or not _is_valid(table, result):
        return None
    months = result.column("time").to_numpy().astype("datetime64[M]").astype(np.int64)
    return [
        _block(table, records[start:end], result.slice(start, end - start), lengths[start:end])
        for start, end in _spans(lengths, months, max_rows)
    ]


def _lengths(table: RawTable, record_batch: pa.RecordBatch) -> Ints | None:
    """Rows of each record; None if a record has none, or arrays that differ in length."""
    first, *others = (pc.list_value_length(record_batch.column(name)) for name in table.explode)
    if any(not other.equals(first) for other in others) or pc.min(first).as_py() == 0:
        return None
    return np.asarray(first.to_numpy(), np.int64)


def _is_valid(table: RawTable, record_batch: pa.RecordBatch) -> bool:
    """Whether all times and counts are possible."""
    for name in table.times:
        bounds = pc.min_max(record_batch.column(name).cast(pa.int64())).as_py()
        if bounds["min"] < 0 or bounds["max"] >= YEAR_2100_MS:
            return False
    return all(pc.min(record_batch.column(name).flatten()).as_py() > 0 for name in table.counts)


def _spans(lengths: Ints, months: Ints, max_rows: int) -> Iterator[tuple[int, int]]:
    """Records of each block: of one month, and of at most `max_rows` rows or one record."""
    start, rows = 0, 0
    for place, (length, month) in enumerate(zip(lengths.tolist(), months.tolist(), strict=True)):
        if rows and (rows + length > max_rows or month != months[start]):
            yield start, place
            start, rows = place, 0
        rows += length
    yield start, len(lengths)


def _block(
    table: RawTable, records: Sequence[ConsumedRecord], record_batch: pa.RecordBatch, lengths: Ints
) -> pa.Table:
    """One block, as `blocks.block` makes it."""
    sources = {column: name for name, column in table.explode.items()}
    place = {
        "_topic": [record.topic for record in records],
        "_partition": [record.partition for record in records],
        "_offset": [record.offset for record in records],
    }
    arrays = []
    for name, kind in zip(table.columns.names, table.columns.types, strict=True):
        if name in sources:
            arrays.append(record_batch.column(sources[name]).flatten().cast(kind))
        else:
            column = (
                pa.array(place[name], kind)
                if name in place
                else record_batch.column(name).cast(kind)
            )
            arrays.append(_repeated(column, lengths))
    return pa.Table.from_arrays(arrays, names=table.columns.names)


def _repeated(column: pa.Array, lengths: Ints) -> pa.Array:
    """Every value as often as its record has rows; text as a dictionary. Raises ArrowInvalid for
    null. Faster than `take`."""
    if pa.types.is_string(column.type):
        texts = column.dictionary_encode()
        return pa.DictionaryArray.from_arrays(_repeated(texts.indices, lengths), texts.dictionary)
    is_time = pa.types.is_timestamp(column.type)
    numbers = (column.view(pa.int64()) if is_time else column).to_numpy()
    repeated = pa.array(np.repeat(numbers, lengths))
    return repeated.view(column.type) if is_time else repeated


def blocks(table: RawTable, records: Iterable[TableRows], max_rows: int) -> Iterator[pa.Table]:
    """Blocks of at most `max_rows` rows, or of one record if it has more."""
    for _month, group in groupby(records, key=lambda rows: rows.month):
        pending: list[TableRows] = []
        size = 0
        for rows in group:
            if size and size + rows.count > max_rows:
                yield block(table, pending)
                pending, size = [], 0
            pending.append(rows)
            size += rows.count
        if size:
            yield block(table, pending)


def block(table: RawTable, records: Sequence[TableRows]) -> pa.Table:
    """One block. Texts shared by all rows of a record are stored once, as a dictionary. Raises any
    Arrow error for a value that a column cannot hold."""
    arrays = []
    exploded = set(table.explode.values())
    of_record = np.repeat(np.arange(len(records)), [rows.count for rows in records])
    for number, column in enumerate(table.columns):
        values = list(chain.from_iterable(rows.columns[number] for rows in records))
        result = pa.array(values, column.type)
        if exploded and column.name not in exploded:
            is_text = pa.types.is_string(column.type)
            result = (result.dictionary_encode() if is_text else result).take(of_record)
        arrays.append(result)
    return pa.Table.from_arrays(arrays, names=table.columns.names)


def halves(table: pa.Table) -> tuple[pa.Table, pa.Table] | None:
    """Split a block in two, never within a record; None if it contains only one record."""
    places = list(zip(table["_partition"].to_pylist(), table["_offset"].to_pylist(), strict=True))
    cuts = [row for row in range(1, len(places)) if places[row] != places[row - 1]]
    if not cuts:
        return None
    cut = cuts[len(cuts) // 2]
    return table.slice(0, cut), table.slice(cut)


@dataclass(frozen=True)
class Translated:
    """Result of translating records of one topic.

    rows: of each record that yields any, in order. unusable: index of the record in the sequence,
    and the reason. hidden_positions: next offset by partition, where the rows alone do not show it.
    dropped: like `unusable`, for records of the topic dead-letter that no row can store.
    """

    rows: list[TableRows]
    unusable: list[tuple[int, str]]
    hidden_positions: dict[int, int]
    dropped: list[tuple[int, str]] = field(default_factory=list)


def translate(table: RawTable, records: Sequence[ConsumedRecord], producer: str) -> Translated:
    """Translate records of the table's topic. Records of one partition must be in offset order."""
    rows: list[TableRows] = []
    unusable: list[tuple[int, str]] = []
    hidden: dict[int, int] = {}
    for number, record in enumerate(records):
        hidden[record.partition] = record.offset + 1
        try:
            result = project(table, record)
        except UnusableError as error:
            if record.topic != DEAD_LETTER:
                unusable.append((number, str(error)))
                continue
            result = stand_in(table, record, str(error), producer)
        if result.count:
            rows.append(result)
            del hidden[record.partition]
    return Translated(rows, unusable, hidden)


def batch_blocks(
    table: RawTable, records: Sequence[ConsumedRecord], producer: str, max_rows: int
) -> tuple[Translated, list[pa.Table]]:
    """Translate records, and create the blocks to insert. Only records whose rows Arrow rejects
    become unusable. Rows decoded as columns are only in the blocks."""
    result = column_blocks(table, records, max_rows)
    if result is not None:
        return Translated([], [], {}), result
    batch = translate(table, records, producer)
    try:
        return batch, list(blocks(table, batch.rows, max_rows))
    except Exception:  # Arrow raises many kinds; each is about a record's values
        batch = _sifted(table, records, batch, producer)
        return batch, list(blocks(table, batch.rows, max_rows))


def _sifted(
    table: RawTable, records: Sequence[ConsumedRecord], batch: Translated, producer: str
) -> Translated:
    """The batch without the rows that Arrow rejects; rows of dead letters are replaced."""
    numbers = {(each.partition, each.offset): number for number, each in enumerate(records)}
    reasons = {id(rows): reason for rows, reason in _unfit(table, batch.rows)}
    sifted = Translated([], list(batch.unusable), dict(batch.hidden_positions))
    for rows in batch.rows:
        reason = reasons.get(id(rows))
        if reason is None:
            sifted.rows.append(rows)
            continue
        partition, offset = rows.place
        number = numbers[rows.place]
        sifted.hidden_positions[partition] = offset + 1
        if table.topic != DEAD_LETTER:
            sifted.unusable.append((number, reason))
            continue
        instead = stand_in(table, records[number], reason, producer)
        if any(_unfit(table, [instead])):
            sifted.dropped.append((number, reason))
        else:
            sifted.rows.append(instead)
    return sifted


def _unfit(table: RawTable, rows: Sequence[TableRows]) -> Iterator[tuple[TableRows, str]]:
    """Rows of single records that Arrow rejects, found by bisection, each with the reason."""
    try:
        block(table, rows)
    except Exception as error:  # as above
        if len(rows) == 1:
            yield rows[0], f"The record cannot be converted to a row: {said_by(error)}."
            return
        half = len(rows) // 2
        yield from _unfit(table, rows[:half])
        yield from _unfit(table, rows[half:])
