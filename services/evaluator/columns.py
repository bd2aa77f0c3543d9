"""Growable numpy columns and dense codes for values: the memory of the pairing state.

>>> names = Dictionary()
>>> names.codes(pa.array(["a", "b", "a"]))
array([0, 1, 0])
"""

import math
from collections.abc import Hashable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

UNKNOWN = -1
MAX_TABLE_CELLS = 1 << 24
MAX_NAMES = 1 << 21


class TooManyNamesError(RuntimeError):
    """More distinct values than can be stored; the text is one sentence."""


class Columns:
    """Equal-length numpy columns that grow on demand; new cells hold the column's fill value.

    `kinds` maps a column name to (dtype, fill value). Growth doubles, so n appends cost O(n).
    """

    def __init__(self, kinds: dict[str, tuple[Any, Any]], size: int = 0) -> None:
        self._kinds = kinds
        self._data = {name: np.full(size, fill, dtype) for name, (dtype, fill) in kinds.items()}
        self.size = size

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


class Dictionary:
    """Dense codes 0, 1, 2, … for values in order of first occurrence, at most MAX_NAMES."""

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}
        self.values: list[Any] = []

    def __len__(self) -> int:
        return len(self.values)

    def codes(self, column: pa.Array, *, or_unknown: bool = False) -> Ints:
        """Codes of an Arrow column of text or integers; null counts as a value. Values beyond
        MAX_NAMES are UNKNOWN if or_unknown, else they raise TooManyNamesError."""
        encoded = column.dictionary_encode(null_encoding="encode")
        table = self._look_up(encoded.dictionary.to_pylist(), or_unknown)
        found: Ints = table[encoded.indices.to_numpy(zero_copy_only=False)]
        return found

    def code(self, value: Hashable) -> int:
        """The code of one value. Raises TooManyNamesError."""
        return int(self._look_up([value], or_unknown=False)[0])

    def value(self, code: int) -> Any:
        """The value of a code; None for UNKNOWN."""
        return None if code == UNKNOWN else self.values[code]

    def _look_up(self, values: list[Any], or_unknown: bool) -> Ints:
        """Codes of distinct values."""
        known = map(self._codes.get, values, repeat(UNKNOWN))
        codes = np.fromiter(known, np.int64, len(values))
        for position in np.flatnonzero(codes == UNKNOWN).tolist():
            codes[position] = self._new(values[position], or_unknown)
        return codes

    def _new(self, value: Hashable, or_unknown: bool) -> int:
        if len(self.values) >= MAX_NAMES:
            if not or_unknown:
                raise TooManyNamesError(f"The inputs have more than {MAX_NAMES:,} names.")
            return UNKNOWN
        self._codes[value] = len(self.values)
        self.values.append(value)
        return len(self.values) - 1


class Pairs:
    """Dense codes 0, 1, 2, … for pairs of codes, in no particular order.

    Stored in a table of all possible pairs, at 4 bytes per cell, which needs no hashing. If the
    table would exceed MAX_TABLE_CELLS, a dict replaces it.
    """

    def __init__(self) -> None:
        self._table = np.full((0, 0), UNKNOWN, np.int32)
        self._codes: dict[tuple[int, int], int] | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, left: Ints, right: Ints) -> Ints:
        """Codes of the pairs (left, right); UNKNOWN if either is. Raises TooManyNamesError."""
        if not len(left):
            return left
        known = (left >= 0) & (right >= 0)
        if not known.all():
            every: Ints = np.full(len(left), UNKNOWN, np.int64)
            every[known] = self.of(left[known], right[known])
            return every
        if self._count > MAX_NAMES:
            raise TooManyNamesError(f"There are more than {MAX_NAMES:,} pairs of keys.")
        self._ensure(int(left.max()) + 1, int(right.max()) + 1)
        if self._codes is not None:
            pairs = zip(left.tolist(), right.tolist(), strict=True)
            return np.fromiter(map(self._code, pairs), np.int64, len(left))
        codes = self._table[left, right]
        new = codes == UNKNOWN
        if new.any():
            cells = np.unique(left[new] * self._table.shape[1] + right[new])
            self._table.reshape(-1)[cells] = np.arange(self._count, self._count + len(cells))
            self._count += len(cells)
            codes = self._table[left, right]
        return codes.astype(np.int64)

    def parts(self) -> tuple[Ints, Ints]:
        """Both parts of every pair, indexed by its code."""
        if self._codes is None:
            known = np.argwhere(self._table != UNKNOWN)
            codes = self._table[tuple(known.T)]
        else:
            known = np.array([*self._codes], np.int64).reshape(-1, 2)
            codes = np.fromiter(self._codes.values(), np.int64, len(self._codes))
        found = np.empty((2, self._count), np.int64)
        found[:, codes] = known.T
        return found[0], found[1]

    def pair(self, code: int) -> tuple[int, int]:
        """The pair of a code. Scans all pairs: use it for single codes only."""
        if self._codes is not None:
            return next(pair for pair, known in self._codes.items() if known == code)
        left, right = np.argwhere(self._table == code)[0].tolist()
        return left, right

    def _code(self, pair: tuple[int, int]) -> int:
        assert self._codes is not None
        code = self._codes.setdefault(pair, self._count)
        self._count = len(self._codes)
        return code

    def _ensure(self, rows: int, columns: int) -> None:
        have = self._table.shape
        if self._codes is not None or (rows <= have[0] and columns <= have[1]):
            return
        shape = [
            max(want, had + had // 2) if want > had else had
            for want, had in zip((rows, columns), have, strict=True)
        ]
        if math.prod(shape) > MAX_TABLE_CELLS:
            known = np.argwhere(self._table != UNKNOWN)
            codes = self._table[tuple(known.T)].tolist()
            pairs = zip(known[:, 0].tolist(), known[:, 1].tolist(), strict=True)
            self._codes = dict(zip(pairs, codes, strict=True))
            self._table = np.full((0, 0), UNKNOWN, np.int32)
            return
        table = np.full(shape, UNKNOWN, np.int32)
        table[: have[0], : have[1]] = self._table
        self._table = table


class KeyCodes:
    """Dense codes for combinations of values of several columns, given the codes of each column.

    With a single column they are the codes of its dictionary.
    """

    def __init__(self, dictionaries: Sequence[Dictionary]) -> None:
        self._dictionaries = tuple(dictionaries)
        self._pairs = [Pairs() for _ in self._dictionaries[1:]]

    def __len__(self) -> int:
        return len(self._pairs[-1] if self._pairs else self._dictionaries[0])

    def of(self, columns: Sequence[Ints]) -> Ints:
        """Codes of rows; UNKNOWN if any column's code is. Raises TooManyNamesError."""
        found = columns[0]
        for pairs, column in zip(self._pairs, columns[1:], strict=True):
            found = pairs.of(found, column)
        return found

    def columns(self, codes: Ints) -> list[Ints]:
        """Codes of each column, given those of rows; UNKNOWN if there is no such row."""
        found: list[Ints] = []
        for pairs in reversed(self._pairs):
            parts = [np.append(part, UNKNOWN) for part in pairs.parts()]
            codes = np.where((codes >= 0) & (codes < len(pairs)), codes, UNKNOWN)
            found.insert(0, parts[1][codes])
            codes = parts[0][codes]
        return [codes, *found]

    def values(self, code: int) -> list[Any]:
        """The values of a code; all None for UNKNOWN. For single codes only."""
        if code == UNKNOWN:
            return [None] * len(self._dictionaries)
        codes: list[int] = []
        for pairs in reversed(self._pairs):
            code, last = pairs.pair(code)
            codes.insert(0, last)
        codes.insert(0, code)
        pairs_of = zip(self._dictionaries, codes, strict=True)
        return [dictionary.value(one) for dictionary, one in pairs_of]


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
