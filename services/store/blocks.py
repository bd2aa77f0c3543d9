"""From the rows of consecutive records to the blocks that are inserted. Pure.

An insert of one block into one partition of a table is atomic. So a block never holds a part of a
record, nor rows of two months, and blocks follow each other in the order of the records: whenever
the process ends, what is in the table is all records up to some offset and none after it.
"""

from collections.abc import Iterable, Iterator
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
                yield _block(table, pending)
                pending, size = [], 0
            pending.append(rows)
            size += rows.count
        if size:
            yield _block(table, pending)


def _block(table: Table, records: list[Rows]) -> pa.Table:
    arrays = [
        pa.array([value for rows in records for value in rows.columns[number]], column.type)
        for number, column in enumerate(table.columns)
    ]
    return pa.Table.from_arrays(arrays, schema=table.columns)
