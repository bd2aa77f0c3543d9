"""Converts consecutive records of one topic to rows, dead letters and positions. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from schemas.catalogue import DEAD_LETTER
from schemas.codec import said_by
from services.store.blocks import block, blocks
from services.store.columns import column_blocks
from services.store.rows import Record, Rows, UnusableError, project, stand_in
from services.store.tables import Table


@dataclass(frozen=True)
class Batch:
    """Result of translating records of one topic.

    rows: of each record that yields any, in order. unusable: index of the record in the sequence,
    and the reason. hidden_positions: next offset by partition, where the rows alone do not show it.
    dropped: like `unusable`, for records of the topic dead-letter that no row can store.
    """

    rows: list[Rows]
    unusable: list[tuple[int, str]]
    hidden_positions: dict[int, int]
    dropped: list[tuple[int, str]] = field(default_factory=list)


def translate(table: Table, records: Sequence[Record], producer: str) -> Batch:
    """Translate records of the table's topic. Records of one partition must be in offset order."""
    rows: list[Rows] = []
    unusable: list[tuple[int, str]] = []
    hidden: dict[int, int] = {}
    for number, record in enumerate(records):
        hidden[record.partition] = record.offset + 1
        try:
            found = project(table, record)
        except UnusableError as error:
            if record.topic != DEAD_LETTER:
                unusable.append((number, str(error)))
                continue
            found = stand_in(table, record, str(error), producer)
        if found.count:
            rows.append(found)
            del hidden[record.partition]
    return Batch(rows, unusable, hidden)


def batch_blocks(
    table: Table, records: Sequence[Record], producer: str, max_rows: int
) -> tuple[Batch, list[pa.Table]]:
    """Translate records, and create the blocks to insert. Only records whose rows Arrow rejects
    become unusable. Rows decoded as columns are only in the blocks."""
    found = column_blocks(table, records, max_rows)
    if found is not None:
        return Batch([], [], {}), found
    batch = translate(table, records, producer)
    try:
        return batch, list(blocks(table, batch.rows, max_rows))
    except Exception:  # Arrow raises many kinds; each is about a record's values
        batch = _sifted(table, records, batch, producer)
        return batch, list(blocks(table, batch.rows, max_rows))


def _sifted(table: Table, records: Sequence[Record], batch: Batch, producer: str) -> Batch:
    """The batch without the rows that Arrow rejects; rows of dead letters are replaced."""
    numbers = {(one.partition, one.offset): number for number, one in enumerate(records)}
    reasons = {id(rows): reason for rows, reason in _unfit(table, batch.rows)}
    sifted = Batch([], list(batch.unusable), dict(batch.hidden_positions))
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


def _unfit(table: Table, rows: Sequence[Rows]) -> Iterator[tuple[Rows, str]]:
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
