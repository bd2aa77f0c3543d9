"""State of one key: recent records of its inputs by event time. Pure.

A place is an event time and the other values that distinguish records of one input. A row has the
columns of the place and then those of each input, null until its record has arrived.

>>> layout = Layout(place=1, inputs=(1, 2))
>>> memory = {}
>>> remember(memory, [(1000, 60, None)], layout, keep_ms=10_000)
[(1000,)]
>>> remember(memory, [(1000, None, 80.0)], layout, keep_ms=10_000)
[(1000,)]
>>> memory
{(1000,): (1000, 60, 80.0)}
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Row = tuple[Any, ...]
Place = tuple[Any, ...]  # event time in epoch milliseconds, and distinguishing values
Memory = dict[Place, Row]


@dataclass(frozen=True)
class Layout:
    """The columns of a row, by index.

    place: number of leading columns that are the place; event time has index 0. inputs: for each
    input a column that is non-null once its record has arrived. most: the column that keeps its
    largest value, `complete.column`; all others keep the first.
    """

    place: int
    inputs: tuple[int, ...]
    most: int | None = None

    def is_whole(self, row: Row) -> bool:
        """Whether the record of each input has arrived."""
        return all(row[number] is not None for number in self.inputs)


def remember(memory: Memory, rows: Iterable[Row], layout: Layout, keep_ms: int) -> list[Place]:
    """Add the records of one batch, in any order.

    Returns the places at which an input got its first record, in order of arrival. The first record
    of an input is kept, later ones are ignored. Records more than `keep_ms` older than the newest
    of earlier batches are ignored. Within a batch nothing is too old, because in a long batch all
    records of one input may come before those of another.
    """
    oldest_ms = _oldest_ms(memory, keep_ms)
    new = []
    for row in rows:
        if row[0] < oldest_ms:
            continue
        place = row[: layout.place]
        before = memory.get(place)
        if before is None:
            memory[place] = row
            new.append(place)
        elif any(before[number] is None and row[number] is not None for number in layout.inputs):
            memory[place] = _merged(before, row, layout)
            new.append(place)
    return new


def forget(memory: Memory, keep_ms: int) -> None:
    """Remove records more than `keep_ms` older than the newest."""
    oldest_ms = _oldest_ms(memory, keep_ms)
    for place in [place for place in memory if place[0] < oldest_ms]:
        del memory[place]


def _oldest_ms(memory: Memory, keep_ms: int) -> float:
    return max((place[0] for place in memory), default=-math.inf) - keep_ms


def complete_rows(
    memory: Memory, start_ms: int, length_ms: int, layout: Layout, every_ms: int
) -> list[Row]:
    """The rows of a window if all records of each input have arrived, else none."""
    assert layout.most is not None
    end_ms, number = start_ms + length_ms, layout.most
    inside = [row for place, row in memory.items() if start_ms <= place[0] < end_ms]
    due = max((row[number] for row in inside), default=0) * (length_ms // every_ms)
    is_complete = all(sum(row[one] is not None for row in inside) == due for one in layout.inputs)
    return inside if is_complete else []


def _merged(before: Row, row: Row, layout: Layout) -> Row:
    merged = [new if old is None else old for old, new in zip(before, row, strict=True)]
    if layout.most is not None:
        merged[layout.most] = max(before[layout.most], row[layout.most])
    return tuple(merged)
