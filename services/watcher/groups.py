"""Remembered inputs by identity, to match outputs with. Pure.

A group is the input, or the inputs of a join, of one output. Groups are kept in the order in which
they are added, which is time order; each has a permanent number. An index of sorted blocks finds
groups by identity. A block is merged when the newer one is as large, so the number of blocks is
logarithmic in the number of groups. Groups by start are looked up by identity and event time.

`Remembered` holds the inputs that wait for their output, are given up, and are forgotten.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from schemas.watch import Relation
from services.runtime.counting import Ints
from services.watcher.records import LOST, NONE_MS, Hashes, RecordColumns, VerdictColumns

OPEN: Final = 0
MISSING: Final = 1
PAIRED: Final = 2
FIRST_CELLS = 1 << 14
_KINDS: dict[str, Any] = {
    "hash": np.uint64,
    "time_ms": np.int64,
    "due_ms": np.int64,
    "state": np.uint8,
    "place": np.int32,
    "offset": np.int64,
    "by": np.int32,
}
# Extra columns of groups by start: event time, and the number of windows that contain it.
_BY_START: dict[str, Any] = {"start_us": np.int64, "windows": np.uint8}
_OWN: Final = ("due_ms", "state", "windows")  # columns that are not arguments of `add`
_Block = tuple[npt.NDArray[Any], ...]  # hash, number and, for groups by start, event time
_Range = tuple[Ints, Ints, Ints]  # numbers of a block; first place and end of each identity


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
    latest input. by: code of the field that latency is split by.
    """

    def __init__(self, by_start: bool = False) -> None:
        self.first = self.end = 0
        self._base = 0
        self._by_start = by_start
        self._kinds = _KINDS | (_BY_START if by_start else {})
        self._columns = {name: np.empty(FIRST_CELLS, kind) for name, kind in self._kinds.items()}
        self._blocks: list[_Block] = []

    @property
    def given(self) -> tuple[str, ...]:
        """Columns to pass to `add`."""
        return tuple(name for name in self._kinds if name not in _OWN)

    def __len__(self) -> int:
        return self.end - self.first

    def of(self, column: str, numbers: Ints) -> npt.NDArray[Any]:
        """A column of some groups."""
        result: npt.NDArray[Any] = self._columns[column][numbers - self._base]
        return result

    def column(self, column: str, first: int, end: int) -> npt.NDArray[Any]:
        """A column of consecutive groups."""
        return self._columns[column][first - self._base : end - self._base]

    def set_state(self, numbers: Ints, state: int) -> None:
        """Set the state of groups."""
        self._columns["state"][numbers - self._base] = state

    def set_states(self, numbers: Ints, states: npt.NDArray[np.uint8]) -> None:
        """Set the state of each of some groups."""
        self._columns["state"][numbers - self._base] = states

    def add_windows(self, numbers: Ints, windows: Ints) -> npt.NDArray[np.uint8]:
        """Add to the number of windows of distinct groups; returns the new numbers."""
        column = self._columns["windows"]
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
        low, high = self.end - self._base, self.end - self._base + count
        before = self._columns["due_ms"][low - 1] if len(self) else time_ms[0]
        columns["due_ms"] = np.maximum.accumulate(np.maximum(time_ms, before))
        for name, values in columns.items():
            self._columns[name][low:high] = values
        self._columns["state"][low:high] = OPEN
        if self._by_start:
            self._columns["windows"][low:high] = 0
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
        for _, low, high in ranges:
            sizes += high - low
        total = np.append(0, sizes.cumsum())
        first = 0
        while first < len(hash_):
            last = int(np.searchsorted(total, total[first] + most, "right")) - 1
            end = max(first + 1, last)
            yield first, end, self._found(ranges, first, end)
            first = end

    def _ranges(self, hash_: Hashes, start_us: Ints | None, end_us: Ints | None) -> list[_Range]:
        """The places of identities in each block."""
        ranges: list[_Range] = []
        order = np.argsort(hash_)
        sorted_hash = hash_[order]
        for block_hash, block_number, *block_start in self._blocks:
            low = np.searchsorted(block_hash, sorted_hash, "left")
            high = np.searchsorted(block_hash, sorted_hash, "right")
            if start_us is not None and end_us is not None:
                low, high = (
                    first_at(block_start[0], low, high, bound[order])
                    for bound in (start_us, end_us)
                )
            if (high > low).any():
                places = np.empty((2, len(order)), np.int64)
                places[:, order] = low, high
                ranges.append((block_number, *places))
        return ranges

    def _found(self, ranges: list[_Range], first: int, end: int) -> Matches:
        """The groups of the identities from `first` to `end`."""
        parts: list[tuple[Ints, Ints]] = []
        for block_number, low, high in ranges:
            lengths = (high - low)[first:end]
            starts = low[first:end] - np.append(0, lengths.cumsum()[:-1])
            places = np.repeat(starts, lengths)
            number = block_number[places + np.arange(len(places))]
            asked = np.repeat(np.arange(first, end), lengths)
            alive = number >= self.first
            parts.append((asked[alive], number[alive]))
        if not parts:
            return Matches(np.empty(0, np.int64), np.empty(0, np.int64))
        asked = np.concatenate([part[0] for part in parts])
        number = np.concatenate([part[1] for part in parts])
        by_both = np.lexsort((number, asked))
        return Matches(asked[by_both], number[by_both])

    def until(self, due_before_ms: int, start: int) -> int:
        """Number of the first group from `start` on that is not due before a time."""
        due = self.column("due_ms", start, self.end)
        return start + int(np.searchsorted(due, due_before_ms, "left"))

    def forget(self, first: int) -> None:
        """Remove the groups before a number."""
        self.first = max(self.first, first)
        self._blocks = [block for block in self._blocks if block[1].max() >= self.first]

    def keep(self, limit: int) -> None:
        """Keep only identities whose hash is below a limit."""
        saved = self.saved()
        kept = saved["hash"] < np.uint64(limit)
        self.restore({name: column[kept] for name, column in saved.items()})

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        """All columns, for `restore`."""
        return {name: self.column(name, self.first, self.end) for name in self._kinds}

    def restore(self, columns: dict[str, npt.NDArray[Any]]) -> None:
        """Replace all groups; they get numbers after all earlier ones."""
        self._base = self.first = self.end
        self.end += len(columns["hash"])
        self._columns = {name: np.array(columns[name], kind) for name, kind in self._kinds.items()}
        self._blocks = []
        self._index(self.first, self.end)

    def _make_room(self, count: int) -> None:
        """Move the remaining groups to the front of sufficiently large columns."""
        if self.end - self._base + count <= len(self._columns["hash"]):
            return
        size = max(FIRST_CELLS, 5 * (len(self) + count) // 4)
        for name, kind in self._kinds.items():
            column = np.empty(size, kind)
            column[: len(self)] = self.column(name, self.first, self.end)
            self._columns[name] = column
        self._base = self.first

    def _index(self, first: int, end: int) -> None:
        if first == end:
            return
        names = ("hash", "start_us") if self._by_start else ("hash",)
        hash_, *start = (self.column(name, first, end) for name in names)
        block = self._block(hash_, np.arange(first, end), *start)
        while self._blocks and len(self._blocks[-1][0]) <= 2 * len(block[0]):
            block = self._merged(self._blocks.pop(), block)
        if len(block[0]):
            self._blocks.append(block)

    @staticmethod
    def _block(hash_: Hashes, number: Ints, *start: Ints) -> _Block:
        order = np.lexsort((*start, hash_)) if start else np.argsort(hash_, kind="stable")
        return tuple(column[order] for column in (hash_, number, *start))

    def _merged(self, older: _Block, newer: _Block) -> _Block:
        """Merge two blocks. Drops forgotten groups and, except by start, paired groups whose
        identity has a younger group with judged outputs."""
        columns = [np.concatenate(both) for both in zip(older, newer, strict=True)]
        alive = columns[1] >= self.first
        block = self._block(*(column[alive] for column in columns))
        hash_, number = block[:2]
        if len(hash_) < 2 or self._by_start:
            return block
        younger = (hash_[1:] == hash_[:-1]) & (number[1:] < self.end)
        has_younger = np.append(younger, False)
        wanted = ~has_younger
        if has_younger.any():
            wanted |= self.of("state", number) != PAIRED
        return hash_[wanted], number[wanted]


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
        groups = {f"group_{name}": column for name, column in self.groups.saved().items()}
        return {"given_up": np.array([given_up])} | groups

    def restore(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Restore saved state."""
        self.groups.restore({name: saved[f"group_{name}"] for name in self.groups.saved()})
        self.given_up = self.groups.first + int(saved["given_up"][0])
