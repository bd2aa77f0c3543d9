"""Growable numpy columns and dense codes for names: the memory of the pairing state.

>>> names = Codes()
>>> names.of_strings(pa.array(["a", "b", "a"]))
array([0, 1, 0])
"""

from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

UNKNOWN = -1


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
        """Make room for indices below `size`."""
        if size <= self.size:
            return
        grown = max(size, 2 * self.size, 16)
        for name, (dtype, fill) in self._kinds.items():
            column = np.full(grown, fill, dtype)
            column[: self.size] = self._data[name]
            self._data[name] = column
        self.size = grown


class Codes:
    """Dense codes 0, 1, 2, … for values in the order they are first seen."""

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}
        self.values: list[Any] = []

    def __len__(self) -> int:
        return len(self.values)

    def of_strings(self, column: pa.Array) -> Ints:
        """Codes of an Arrow string column."""
        encoded = column.dictionary_encode()
        table = self._look_up(encoded.dictionary.to_pylist())
        codes: Ints = table[encoded.indices.to_numpy(zero_copy_only=False)]
        return codes

    def of_ints(self, column: Ints) -> Ints:
        """Codes of an integer column."""
        values, inverse = np.unique(column, return_inverse=True)
        return self._look_up(values.tolist())[inverse]

    def _look_up(self, values: list[Any]) -> Ints:
        codes = np.empty(len(values), np.int64)
        for position, value in enumerate(values):
            code = self._codes.get(value, UNKNOWN)
            if code == UNKNOWN:
                code = self._codes[value] = len(self.values)
                self.values.append(value)
            codes[position] = code
        return codes


def first_of_each(values: Ints) -> Bools:
    """Which cells are the first with their value.

    >>> first_of_each(np.array([7, 8, 7]))
    array([ True,  True, False])
    """
    first = np.zeros(len(values), bool)
    first[np.unique(values, return_index=True)[1]] = True
    return first
