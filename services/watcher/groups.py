"""Remembered inputs by identity, to match outputs with. Pure.

A group is the input, or the inputs of a join, of one output. Groups are kept in the order in which
they are added, which is time order; each has a permanent number. An index of sorted blocks finds
groups by identity. A block is merged when the newer one is as large, up to MOST_BLOCK groups, which
bounds what merging takes, and what is kept of forgotten groups. Groups by start are looked up by
identity and event time.

A column keeps the differences from a number in few bits while they fit, and else whole numbers, so
nothing is rounded. A column of equal numbers takes no memory.

`Remembered` holds the inputs that wait for their output, are given up, and are forgotten.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from schemas.watch import Relation
from services.runtime.counting import Ints
from services.watcher.records import LOST, NONE_MS, Hashes, RecordColumns, VerdictColumns

OPEN: Final = 0
MISSING: Final = 1
PAIRED: Final = 2
FIRST_CELLS = 1 << 14
MOST_BLOCK: Final = 1 << 17
# Of each column as it is saved: its numbers, and how their differences are kept while these fit.
_KINDS: dict[str, tuple[Any, Any]] = {
    "hash": (np.uint64, np.uint64),
    "time_ms": (np.int64, np.int32),
    "due_ms": (np.int64, np.int32),
    "state": (np.uint8, np.uint8),
    "place": (np.int32, np.int16),
    "offset": (np.int64, np.int32),
    "by": (np.int32, np.int16),
}
# Extra columns of groups by start: event time, and the number of windows that contain it.
_BY_START: dict[str, tuple[Any, Any]] = {
    "start_us": (np.int64, np.int64),
    "windows": (np.uint8, np.uint8),
}
_OWN: Final = ("due_ms", "state", "windows")  # columns that are not arguments of `add`
BEHIND: Final = "behind_ms"  # what is kept of `due_ms`: its difference from `time_ms`
BASES: Final = "bases"
GROUP: Final = "group_"


class Column:
    """Numbers of one kind in consecutive rows. cells: their differences from `base`, of the kind
    `small` if these fit, else the numbers; a single zero in memory while all are equal."""

    def __init__(self, kind: Any, small: Any) -> None:
        self._kind, self._small = np.dtype(kind), np.dtype(small)
        self.base = 0
        self.cells = np.empty(FIRST_CELLS, small)
        if self._small != self._kind:
            self.cells = self._zeros(FIRST_CELLS)

    @property
    def are_equal(self) -> bool:
        """Whether all numbers are known to be equal."""
        return self.cells.strides == (0,)

    def get(self, rows: Any) -> npt.NDArray[Any]:
        """The numbers of some rows."""
        cells: npt.NDArray[Any] = self.cells[rows]
        if cells.dtype != self._kind:
            cells = np.add(cells, self.base, dtype=self._kind)
        return cells

    def put(self, first: int, low: int, values: npt.NDArray[Any]) -> None:
        """Set rows from `low` on, which were free. first: the first row in use."""
        if not len(values):
            return
        if self.are_equal:
            if low == first:
                self.base = int(values[0])
            if (values == self.base).all():
                return
            self.cells = np.zeros(len(self.cells), self._small)
        if self._small != self._kind:
            if not self._fits(values):
                self._set_base(first, low, values)
            values = np.subtract(values, self.base, dtype=np.int64)
        self.cells[low : low + len(values)] = values

    def move(self, low: int, high: int, size: int) -> None:
        """Move rows to the front of `size` cells, within the present ones if they are as many."""
        if self.are_equal:
            self.cells = self._zeros(size)
            return
        if size == len(self.cells) and low and self.cells.dtype == self._small:
            for first in range(0, high - low, low):  # parts that do not overlap
                end = min(first + low, high - low)
                self.cells[first:end] = self.cells[first + low : end + low]
            return
        cells = np.empty(size, self.cells.dtype)
        cells[: high - low] = self.cells[low:high]
        self.cells = cells
        if cells.dtype != self._small and high > low:
            self._set_base(0, high - low, np.empty(0, self._kind))

    def _zeros(self, size: int) -> npt.NDArray[Any]:
        return np.broadcast_to(self._small.type(0), size)

    def _fits(self, values: npt.NDArray[Any]) -> bool:
        limits = np.iinfo(self.cells.dtype)
        low, high = int(values.min()) - self.base, int(values.max()) - self.base
        return bool(limits.min <= low and high <= limits.max)

    def _set_base(self, first: int, low: int, values: npt.NDArray[Any]) -> None:
        """Keep the rows from `first` to `low` so that further values fit."""
        rows = slice(first, low)
        known, size = self.get(rows), len(self.cells)
        every = np.concatenate([known, values])
        least, most = int(every.min()), int(every.max())
        is_small = most - least <= np.iinfo(self._small).max
        self.base = least if is_small else 0
        self.cells = np.empty(size, self._small if is_small else self._kind)
        self.cells[rows] = np.subtract(known, self.base, dtype=np.int64)


class _Block(NamedTuple):
    """Some groups by identity and, for groups by start, event time. first, last: the least and the
    greatest number; hash: ascending; row: numbers less the first."""

    first: int
    last: int
    hash: Hashes
    row: npt.NDArray[np.int32]
    start: Ints | None

    @property
    def number(self) -> Ints:
        """The number of each."""
        return np.add(self.row, self.first, dtype=np.int64)


class _Range(NamedTuple):
    """Places of identities in a block: asked, the positions of those that it has; from `low` to
    `high` of each."""

    block: _Block
    asked: Ints
    low: Ints
    high: Ints


@dataclass(frozen=True)
class Matches:
    """Groups found for identities: asked is the position of the identity, number the group's;
    sorted by asked, then number."""

    asked: Ints
    number: Ints


class Groups:
    """Groups with numbers from `first` to `end`, exclusive.

    hash: of the identity. time_ms: of the latest input. due_ms: running maximum of time_ms, so it
    never decreases when records are out of order. place, offset: partition code and offset of the
    latest input. by: code of the field that latency is split by. most: groups in a block.
    """

    def __init__(self, by_start: bool = False, most: int = MOST_BLOCK) -> None:
        self.first = self.end = 0
        self._base = 0
        self._by_start = by_start
        self._most = most
        self._kinds = _KINDS | (_BY_START if by_start else {})
        self._columns = self._new_columns()
        self._blocks: list[_Block] = []

    @property
    def given(self) -> tuple[str, ...]:
        """Columns to pass to `add`."""
        return tuple(name for name in self._kinds if name not in _OWN)

    def __len__(self) -> int:
        return self.end - self.first

    def of(self, column: str, numbers: Ints) -> npt.NDArray[Any]:
        """A column of some groups."""
        return self._columns[column].get(numbers - self._base)

    def column(self, column: str, first: int, end: int) -> npt.NDArray[Any]:
        """A column of consecutive groups."""
        return self._columns[column].get(slice(first - self._base, end - self._base))

    def _due(self) -> Column:
        """The column `due_ms`: that of the times, unless some are behind."""
        time, behind = self._columns["time_ms"], self._columns[BEHIND]
        if behind.are_equal and not behind.base:
            return time
        low, high = self.first - self._base, self.end - self._base
        result = Column(*_KINDS["due_ms"])
        result.move(0, 0, len(time.cells))
        result.put(low, low, time.get(slice(low, high)) + behind.get(slice(low, high)))
        return result

    def _due_ms(self, number: int) -> int:
        row = number - self._base
        return int(self._columns["time_ms"].get(row)) + int(self._columns[BEHIND].get(row))

    def _new_columns(self) -> dict[str, Column]:
        kinds = {BEHIND if name == "due_ms" else name: each for name, each in self._kinds.items()}
        return {name: Column(*each) for name, each in kinds.items()}

    def set_state(self, numbers: Ints, state: int) -> None:
        """Set the state of groups."""
        self._columns["state"].cells[numbers - self._base] = state

    def set_states(self, numbers: Ints, states: npt.NDArray[np.uint8]) -> None:
        """Set the state of each of some groups."""
        self._columns["state"].cells[numbers - self._base] = states

    def add_windows(self, numbers: Ints, windows: Ints) -> npt.NDArray[np.uint8]:
        """Add to the number of windows of distinct groups; returns the new numbers."""
        column = self._columns["windows"].cells
        rows = numbers - self._base
        column[rows] = np.minimum(column[rows] + windows, np.iinfo(np.uint8).max)
        return column[rows]

    def add(self, **columns: npt.NDArray[Any]) -> None:
        """Add open groups in time order, with all columns of `given`."""
        time_ms = columns["time_ms"]
        count = len(time_ms)
        if not count:
            return
        self._make_room(count)
        first, low = self.first - self._base, self.end - self._base
        before = self._due_ms(self.end - 1) if len(self) else time_ms[0]
        columns[BEHIND] = np.maximum.accumulate(np.maximum(time_ms, before)) - time_ms
        columns["state"] = np.full(count, OPEN, np.uint8)
        if self._by_start:
            columns["windows"] = np.zeros(count, np.uint8)
        for name, values in columns.items():
            self._columns[name].put(first, low, values)
        self._index(self.end, self.end + count)
        self.end += count

    def find(
        self, hash_: Hashes, start_us: Ints | None = None, end_us: Ints | None = None
    ) -> Matches:
        """The groups of identities, within a span of event time if given."""
        return self._found(self._ranges(hash_, start_us, end_us), 0, len(hash_))

    def find_in_parts(
        self, hash_: Hashes, start_us: Ints, end_us: Ints, most: int
    ) -> Iterator[tuple[int, int, Matches]]:
        """The same for consecutive identities, with the first and the end of each part. A part has
        at most `most` groups, or one identity."""
        ranges = self._ranges(hash_, start_us, end_us)
        sizes = np.zeros(len(hash_), np.int64)
        for each in ranges:
            sizes[each.asked] += each.high - each.low
        total = np.append(0, sizes.cumsum())
        first = 0
        while first < len(hash_):
            last = int(np.searchsorted(total, total[first] + most, "right")) - 1
            end = max(first + 1, last)
            yield first, end, self._found(ranges, first, end)
            first = end

    def _ranges(self, hash_: Hashes, start_us: Ints | None, end_us: Ints | None) -> list[_Range]:
        """The places of identities in the blocks that have some of them."""
        ranges: list[_Range] = []
        order = np.argsort(hash_)
        sorted_hash = hash_[order]
        for block in self._blocks:
            low = np.searchsorted(block.hash, sorted_hash, "left")
            mine = block.hash[np.minimum(low, len(block.hash) - 1)] == sorted_hash
            if not mine.any():
                continue
            asked, low = order[mine], low[mine]
            high = np.searchsorted(block.hash, sorted_hash[mine], "right")
            if start_us is not None and end_us is not None and block.start is not None:
                low, high = (
                    first_at(block.start, low, high, bound[asked]) for bound in (start_us, end_us)
                )
            ranges.append(_Range(block, asked, low, high))
        return ranges

    def _found(self, ranges: list[_Range], first: int, end: int) -> Matches:
        """The groups of the identities from `first` to `end`."""
        parts: list[tuple[Ints, Ints]] = []
        for block, asked, low, high in ranges:
            mine = (asked >= first) & (asked < end)
            lengths = (high - low)[mine]
            starts = low[mine] - np.append(0, lengths.cumsum()[:-1])
            places = np.repeat(starts, lengths)
            number = np.add(block.row[places + np.arange(len(places))], block.first, dtype=np.int64)
            alive = number >= self.first
            parts.append((np.repeat(asked[mine], lengths)[alive], number[alive]))
        if not parts:
            return Matches(np.empty(0, np.int64), np.empty(0, np.int64))
        asked = np.concatenate([part[0] for part in parts])
        number = np.concatenate([part[1] for part in parts])
        by_both = np.lexsort((number, asked))
        return Matches(asked[by_both], number[by_both])

    def until(self, due_before_ms: int, start: int) -> int:
        """Number of the first group from `start` on that is not due before a time."""
        return bisect_left(range(self.end), due_before_ms, start, self.end, key=self._due_ms)

    def forget(self, first: int) -> None:
        """Remove the groups before a number."""
        self.first = max(self.first, first)
        self._blocks = [block for block in self._blocks if block.last >= self.first]

    def keep(self, limit: int) -> None:
        """Keep only identities whose hash is below a limit."""
        kept = self.column("hash", self.first, self.end) < np.uint64(limit)
        self._replace({name: column[kept] for name, column in self._numbers().items()})

    def _numbers(self) -> dict[str, npt.NDArray[Any]]:
        return {name: self.column(name, self.first, self.end) for name in self._columns}

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        """All columns as they are kept, for `restore`, and their bases."""
        rows = slice(self.first - self._base, self.end - self._base)
        columns = self._columns | {"due_ms": self._due()}
        columns = {name: columns[name] for name in self._kinds}
        cells = {name: column.cells[rows] for name, column in columns.items()}
        return cells | {BASES: np.array([each.base for each in columns.values()], np.int64)}

    def restore(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Replace all groups; they get numbers after all earlier ones. Releases up to 0.1.0 save
        numbers without bases."""
        bases = columns.get(BASES, np.zeros(len(self._kinds), np.int64)).tolist()
        numbers = {
            name: np.add(columns[name], base, dtype=kind) if base else columns[name]
            for (name, (kind, _)), base in zip(self._kinds.items(), bases, strict=True)
        }
        self._replace(numbers | {BEHIND: numbers.pop("due_ms") - numbers["time_ms"]})

    def _replace(self, columns: dict[str, npt.NDArray[Any]]) -> None:
        self._base = self.first = self.end
        count = len(columns["hash"])
        self.end += count
        self._blocks = []
        self._columns = self._new_columns()
        for name, column in self._columns.items():
            column.move(0, 0, max(FIRST_CELLS, count))
            column.put(0, 0, columns.pop(name))
        for first in range(self.first, self.end, self._most):
            self._index(first, min(first + self._most, self.end))

    def _make_room(self, count: int) -> None:
        """Move the remaining groups to the front of sufficiently large columns."""
        low, high = self.first - self._base, self.end - self._base
        if high + count <= len(self._columns["hash"].cells):
            return
        size, known = len(self) + count, len(self._columns["hash"].cells)
        is_good = 33 * size <= 32 * known <= 40 * size
        size = known if is_good else max(FIRST_CELLS, 17 * size // 16)
        for column in self._columns.values():
            column.move(low, high, size)
        self._base = self.first

    def _index(self, first: int, end: int) -> None:
        if first == end:
            return
        start = self.column("start_us", first, end) if self._by_start else None
        block = self._block(self.column("hash", first, end), np.arange(first, end), start)
        while self._blocks and self._is_near(self._blocks[-1], block):
            block = self._merged(self._blocks.pop(), block)
        if len(block.hash):
            self._blocks.append(block)

    def _is_near(self, older: _Block, newer: _Block) -> bool:
        """Whether two blocks are to be one."""
        sizes = len(older.hash), len(newer.hash)
        return sizes[0] <= 2 * sizes[1] and sum(sizes) <= self._most

    @staticmethod
    def _block(hash_: Hashes, number: Ints, start: Ints | None) -> _Block:
        if not len(hash_):
            return _Block(0, -1, hash_, number.astype(np.int32), start)
        keys = (hash_,) if start is None else (start, hash_)
        order = np.lexsort(keys) if len(keys) > 1 else np.argsort(hash_, kind="stable")
        first, last = int(number.min()), int(number.max())
        row = (number[order] - first).astype(np.int32)
        return _Block(first, last, hash_[order], row, None if start is None else start[order])

    def _merged(self, older: _Block, newer: _Block) -> _Block:
        """Merge two blocks, without forgotten groups."""
        if older.start is not None and newer.start is not None:
            number = np.concatenate([older.number, newer.number])
            alive = number >= self.first
            hash_ = np.concatenate([older.hash, newer.hash])[alive]
            start = np.concatenate([older.start, newer.start])[alive]
            return self._block(hash_, number[alive], start)
        return self._without_past(_merge(older, newer))

    def _without_past(self, block: _Block) -> _Block:
        """Drop forgotten groups, and paired ones whose identity has a younger group with judged
        outputs."""
        wanted = block.row >= self.first - block.first
        is_judged = block.row[1:] < self.end - block.first
        has_younger = np.flatnonzero((block.hash[1:] == block.hash[:-1]) & is_judged & wanted[:-1])
        states = self.of("state", np.add(block.row[has_younger], block.first, dtype=np.int64))
        wanted[has_younger[states == PAIRED]] = False
        if wanted.all():
            return block
        hash_, row = block.hash[wanted], block.row[wanted]
        if not len(row):
            return _Block(0, -1, hash_, row, None)
        least, most = int(row.min()), int(row.max())
        return _Block(block.first + least, block.first + most, hash_, row - least, None)


def _merge(older: _Block, newer: _Block) -> _Block:
    """Two blocks without starts as one; of equal identities the older group is first."""
    places = np.searchsorted(older.hash, newer.hash, "right") + np.arange(len(newer.hash))
    count = len(older.hash) + len(newer.hash)
    is_older = np.ones(count, bool)
    is_older[places] = False
    hash_, row = np.empty(count, np.uint64), np.empty(count, np.int32)
    for column, old, new in (
        (hash_, older.hash, newer.hash),
        (row, older.row, newer.row + np.int32(newer.first - older.first)),
    ):
        column[is_older], column[places] = old, new
    return _Block(older.first, newer.last, hash_, row, None)


def first_at(column: Ints, low: Ints, high: Ints, wanted: Ints) -> Ints:
    """For each wanted value, bisect an ascending range of the column from `low` to `high` for the
    first position that is not below it."""
    low, high = low.copy(), high.copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        is_below = open_.copy()
        is_below[open_] = column[middle[open_]] < wanted[open_]
        low = np.where(is_below, middle + 1, low)
        high = np.where(open_ & ~is_below, middle, high)
    return low


def named(columns: Mapping[str, npt.NDArray[Any]], head: str) -> dict[str, npt.NDArray[Any]]:
    """The columns whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(head): column for name, column in columns.items() if name.startswith(head)
    }


class Remembered:
    """Groups of a relation. given_up: number of the first that is not given up."""

    def __init__(self, relation: Relation, by_start: bool = False) -> None:
        self._relation = relation
        self.groups = Groups(by_start)
        self.given_up = 0

    def add(self, inputs: RecordColumns) -> None:
        """Add groups in time order."""
        self.groups.add(**{name: getattr(inputs, name) for name in self.groups.given})

    def give_up(self, before_ms: int) -> VerdictColumns:
        """Give up groups whose wait has ended; they are missing."""
        start = max(self.given_up, self.groups.first)
        end = self.groups.until(before_ms - self._relation.give_up_ms, start)
        self.given_up = end
        numbers = np.arange(start, end)
        numbers = numbers[self.groups.of("state", numbers) == OPEN]
        self.groups.set_state(numbers, MISSING)
        count = len(numbers) if self._relation.kind != "filter" else 0
        return self.said(LOST, numbers[:count])

    def said(self, verdict: int, numbers: Ints) -> VerdictColumns:
        """The same verdict for several groups."""
        return VerdictColumns(
            np.full(len(numbers), verdict, np.uint8),
            self.groups.of("hash", numbers),
            self.groups.of("time_ms", numbers),
            np.full(len(numbers), NONE_MS, np.int64),
            self.groups.of("place", numbers),
            self.groups.of("offset", numbers),
            self.groups.of("by", numbers),
            np.zeros(len(numbers), np.int64),
            np.full(len(numbers), NONE_MS, np.int64),
        )

    def forget(self, before_ms: int) -> None:
        """Remove groups that outputs no longer match."""
        end = self.groups.until(before_ms - self._relation.remember_ms, self.groups.first)
        self.groups.forget(min(end, self.given_up))

    def keep(self, limit: int) -> None:
        """Keep only identities whose hash is below a limit."""
        given_up = self.given_up - self.groups.first
        hash_ = self.groups.column("hash", self.groups.first, self.groups.end)
        kept_of_these = int((hash_[: max(0, given_up)] < np.uint64(limit)).sum())
        self.groups.keep(limit)
        self.given_up = self.groups.first + kept_of_these

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        """The complete state, for `restore`."""
        given_up = max(0, self.given_up - self.groups.first)
        groups = {f"{GROUP}{name}": column for name, column in self.groups.saved().items()}
        return {"given_up": np.array([given_up])} | groups

    def restore(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Restore saved state."""
        self.groups.restore(named(saved, GROUP))
        self.given_up = self.groups.first + int(saved["given_up"][0])
