"""From consecutive records of one topic to what has to be written because of them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.catalogue import DEAD_LETTER
from services.store.rows import Record, Rows, UnusableError, project, stand_in
from services.store.tables import Table


@dataclass(frozen=True)
class Batch:
    """What records of one topic come to.

    rows: of each record that gives any, in order. unusable: number of the record in the sequence
    and why. hidden_positions: next offset by partition, where rows alone do not show it.
    """

    rows: list[Rows]
    unusable: list[tuple[int, str]]
    hidden_positions: dict[int, int]


def translate(table: Table, records: Sequence[Record], producer: str) -> Batch:
    """Translate records of the table's topic; those of a partition come in order of offset."""
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
