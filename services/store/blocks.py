"""Combines the rows of consecutive records into blocks to insert. Pure.

An insert of one block into one partition of a table is atomic. Therefore a block never contains
part of a record, nor rows of two months, and blocks are in the order of the records. Whenever the
process ends, the table contains all records up to some offset and none after it.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby

import numpy as np
import pyarrow as pa

from services.store.rows import Rows
from services.store.tables import Table


def blocks(table: Table, records: Iterable[Rows], max_rows: int) -> Iterator[pa.Table]:
    """Blocks of at most `max_rows` rows, or of one record if it has more."""
    for _month, group in groupby(records, key=lambda rows: rows.month):
        pending: list[Rows] = []
        size = 0
        for rows in group:
            if size and size + rows.count > max_rows:
                yield block(table, pending)
                pending, size = [], 0
            pending.append(rows)
            size += rows.count
        if size:
            yield block(table, pending)


def block(table: Table, records: Sequence[Rows]) -> pa.Table:
    """One block. Texts shared by all rows of a record are stored once, as a dictionary. Raises any
    Arrow error for a value that a column cannot hold."""
    arrays = []
    exploded = set(table.explode.values())
    of_record = np.repeat(np.arange(len(records)), [rows.count for rows in records])
    for number, column in enumerate(table.columns):
        values = list(chain.from_iterable(rows.columns[number] for rows in records))
        found = pa.array(values, column.type)
        if exploded and column.name not in exploded:
            is_text = pa.types.is_string(column.type)
            found = (found.dictionary_encode() if is_text else found).take(of_record)
        arrays.append(found)
    return pa.Table.from_arrays(arrays, names=table.columns.names)


def halves(found: pa.Table) -> tuple[pa.Table, pa.Table] | None:
    """Split a block in two, never within a record; None if it contains only one record."""
    places = list(zip(found["_partition"].to_pylist(), found["_offset"].to_pylist(), strict=True))
    cuts = [row for row in range(1, len(places)) if places[row] != places[row - 1]]
    if not cuts:
        return None
    cut = cuts[len(cuts) // 2]
    return found.slice(0, cut), found.slice(cut)
