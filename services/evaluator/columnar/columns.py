"""Growable numpy columns, and groups of cells by key: the memory of the pairing state."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

UNKNOWN = -1
MAX_DENSE_CELLS = 1 << 20
SPARSE_SHARE = 4
_CODE = "#code"  # the column of codes; no column of a record has such a name
_INDEX_BYTES = 16  # of a cell in the index of a sparse group


@dataclass(frozen=True)
class StateLimits:
    """Bounds of what the evaluation of a run keeps in memory."""

    cells: int = 12_000_000  # about 1 GB of pairing state
    keep_s: int = 900  # longer than a real-time batch: to recognise outputs repeated by a restart
    group_bytes: int = 3_000_000_000  # of the groups of a stage
    names: int = 1 << 21  # of each dictionary; and pairs of keys
    # Of each dictionary: values that outputs had before any input, and their size.
    unclaimed: int = 1 << 18
    unclaimed_bytes: int = 32 * 1024 * 1024
    table_cells: int = 1 << 24  # of a table of all pairs
    early_outputs: int = 100_000  # of each stage of a pipeline; some 100 bytes each
    evicted_missing: int = 2_000_000  # of each stage of a pipeline; 8 bytes each
    pairs_of_event: int = 2_000
    socket_times: int = 8_000_000  # of each stage behind sockets; 8 bytes each


LIMITS = StateLimits()


class TooMuchStateError(RuntimeError):
    """More distinct values or cells than can be stored; the text is one sentence."""


class Columns:
    """Equal-length numpy columns that grow on demand; new cells hold the column's fill value.

    `kinds` maps a column name to (dtype, fill value). Growth doubles, so n appends cost O(n).
    """

    def __init__(self, kinds: dict[str, tuple[Any, Any]], size: int = 0) -> None:
        self._kinds = kinds
        self._data = {name: np.full(size, fill, dtype) for name, (dtype, fill) in kinds.items()}
        self.size = size

    @property
    def bytes(self) -> int:
        """Memory of the cells."""
        return sum(column.nbytes for column in self._data.values())

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._data[name]

    def ensure(self, size: int) -> None:
        """Grow so that indices below `size` are valid."""
        if size <= self.size:
            return
        grown = max(size, 2 * self.size, 16)
        for name, (dtype, fill) in self._kinds.items():
            column = np.full(grown, fill, dtype)
            column[: self.size] = self._data[name]
            self._data[name] = column
        self.size = grown


class Group(Columns):
    """The cells of one group, such as a window, by the codes of their keys.

    A dense group has a cell for every code up to the largest, at the position of the code. A sparse
    one has cells only for the codes that occur in it, in the order in which they were added.
    """

    def __init__(self, kinds: dict[str, tuple[Any, Any]], *, dense: bool) -> None:
        super().__init__(kinds if dense else kinds | {_CODE: (np.int64, UNKNOWN)})
        none = np.zeros(0, np.int64)
        # The codes of a sparse group in ascending order, and their positions.
        self._index: tuple[Ints, Ints] | None = None if dense else (none, none)

    @property
    def bytes(self) -> int:
        """Memory of the cells and of their index."""
        return super().bytes + (0 if self._index is None else _INDEX_BYTES * len(self._index[0]))

    def positions(self, codes: Ints) -> Ints:
        """Positions of the cells of these codes; UNKNOWN without a cell."""
        result: Ints
        if self._index is None:
            result = np.where(codes < self.size, codes, UNKNOWN)
            return result
        known, places = self._index
        if not len(known):
            return np.full(len(codes), UNKNOWN, np.int64)
        at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        result = np.where(known[at] == codes, places[at], UNKNOWN)
        return result

    def codes(self, at: Ints) -> Ints:
        """Codes of the cells at these positions."""
        return at if self._index is None else self[_CODE][at]

    def add(self, codes: Ints) -> Ints:
        """Positions of the cells of these codes, which get one if they have none."""
        if self._index is None:
            self.ensure(int(codes.max()) + 1)
            return codes
        result = self.positions(codes)
        new = np.unique(codes[result == UNKNOWN])
        if not len(new):
            return result
        known, places = self._index
        added = np.arange(len(known), len(known) + len(new))
        self.ensure(len(known) + len(new))
        self[_CODE][added] = new
        known, places = np.concatenate([known, new]), np.concatenate([places, added])
        order = np.argsort(known, kind="stable")
        self._index = known[order], places[order]
        return self.positions(codes)


class CellGroups(dict[int, Group]):
    """The cells of groups by the codes of their keys.

    A group is dense if few cells are wasted: while all groups have at most MAX_DENSE_CELLS, or if
    one code in SPARSE_SHARE occurs in its first batch.
    """

    def __init__(
        self, kinds: dict[str, tuple[Any, Any]], max_bytes: int = LIMITS.group_bytes
    ) -> None:
        super().__init__()
        self._max_bytes = max_bytes
        self._kinds = kinds
        self._bytes = 0
        self.size = 0

    def add(self, number: int, codes: Ints, keys: int) -> tuple[Group, Ints]:
        """A group with cells for these codes, at least one, and their positions. keys: number of
        all codes. Raises TooMuchStateError."""
        group = self.get(number)
        if group is None:
            dense = self.size + keys <= MAX_DENSE_CELLS
            dense = dense or keys <= SPARSE_SHARE * len(np.unique(codes))
            group = self[number] = Group(self._kinds, dense=dense)
        size, held = group.size, group.bytes
        at = group.add(codes)
        self.size += group.size - size
        self._bytes += group.bytes - held
        if self._bytes > self._max_bytes:
            raise TooMuchStateError(
                f"The evaluator would need more than {self._max_bytes:,} bytes for a stage: "
                f"{len(self):,} windows or event times with {self.size:,} cells for {keys:,} keys."
            )
        return group, at

    def evict(self, before: int) -> list[int]:
        """Remove the groups before a number; returns them."""
        gone = [number for number in self if number < before]
        self.remove(gone)
        return gone

    def remove(self, numbers: list[int]) -> None:
        """Remove these groups."""
        for number in numbers:
            group = self.pop(number)
            self.size -= group.size
            self._bytes -= group.bytes


def first_of_each(values: Ints) -> Bools:
    """Which cells are the first with their value.

    >>> first_of_each(np.array([7, 8, 7]))
    array([ True,  True, False])
    """
    if len(values) and (values[1:] > values[:-1]).all():
        return np.ones(len(values), bool)
    low = int(values.min()) if len(values) else 0
    span = int(values.max()) - low + 1 if len(values) else 0
    first = np.zeros(len(values), bool)
    if span > 8 * len(values) + 4096:
        first[np.unique(values, return_index=True)[1]] = True
        return first
    place = np.empty(span, np.int64)
    place[values[::-1] - low] = np.arange(len(values) - 1, -1, -1)  # the last assignment wins
    first[place[values - low]] = True
    return first
