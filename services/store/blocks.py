"""From the rows of consecutive records to the blocks that are inserted. Pure.

An insert of one block into one partition of a table is atomic. So a block never holds a part of a
record, nor rows of two months, and blocks follow each other in the order of the records: whenever
the process ends, what is in the table is all records up to some offset and none after it.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import pyarrow as pa

from services.store.rows import Rows
from services.store.tables import Table


def blocks(table: Table, records: Iterable[Rows], max_rows: int) -> Iterator[pa.Table]:
    """Blocks of at most `max_rows` rows, or of one record where that alone has more."""
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
    """One block. Raises what Arrow raises for a value that a column cannot hold."""
    arrays = [
        pa.array([value for rows in records for value in rows.columns[number]], column.type)
        for number, column in enumerate(table.columns)
    ]
    return pa.Table.from_arrays(arrays, schema=table.columns)


def halves(found: pa.Table) -> tuple[pa.Table, pa.Table] | None:
    """A block as two, neither with a part of a record; None where it is of one record."""
    places = list(zip(found["_partition"].to_pylist(), found["_offset"].to_pylist(), strict=True))
    cuts = [row for row in range(1, len(places)) if places[row] != places[row - 1]]
    if not cuts:
        return None
    cut = cuts[len(cuts) // 2]
    return found.slice(0, cut), found.slice(cut)
