"""Dense codes for values and for combinations of keys.

>>> names = Dictionary()
>>> names.codes(pa.array(["a", "b", "a"]))
array([0, 1, 0])
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from itertools import islice, repeat
from sys import getsizeof
from typing import Any

import numpy as np
import pyarrow as pa

from services.evaluator.columnar.columns import (
    LIMITS,
    UNKNOWN,
    Columns,
    Ints,
    StateLimits,
    TooMuchStateError,
)

MAX_REFUSED = 1_000  # of each dictionary: hashes of values without a code
_BITS = 31  # of the right code of a pair


class Unclaimed:
    """Codes of the values that outputs had and no input has, and hashes of the first values of
    outputs that got no code because there were too many.

    The run fails if an input has one of the latter: outputs with it have been misjudged.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._codes = Columns({"is_unclaimed": (np.bool_, False)})
        self._count = 0
        self._refused: set[int] = set()

    @property
    def room(self) -> int:
        """How many more are allowed."""
        return max(0, self._limit - self._count)

    def add(self, first: int, count: int) -> None:
        """Add codes."""
        self._codes.ensure(first + count)
        self._codes["is_unclaimed"][first : first + count] = True
        self._count += count

    def refuse(self, values: Iterable[Hashable]) -> None:
        """Note values that get no code."""
        self._refused.update(map(hash, islice(values, MAX_REFUSED - len(self._refused))))

    def claim(self, codes: Ints) -> Ints:
        """Remove codes of inputs, and return those that were unclaimed."""
        if not self._count or not len(codes):
            return codes[:0]
        self._codes.ensure(int(codes.max()) + 1)
        is_unclaimed = self._codes["is_unclaimed"]
        result: Ints = np.unique(codes[is_unclaimed[codes]])
        is_unclaimed[result] = False
        self._count -= len(result)
        return result

    def check(self, values: Iterable[Hashable]) -> None:
        """Check new values of inputs. Raises TooMuchStateError."""
        if self._refused and not self._refused.isdisjoint(map(hash, values)):
            raise TooMuchStateError("Outputs had too many names or keys before any input had them.")


class Dictionary:
    """Dense codes 0, 1, 2, … for values in order of first occurrence, at most `limits.names`."""

    def __init__(self, limits: StateLimits = LIMITS) -> None:
        self.limits = limits
        self._codes: dict[Hashable, int] = {}
        self._unclaimed = Unclaimed(limits.unclaimed)
        self._unclaimed_bytes = 0
        self.values: list[Any] = []

    def __len__(self) -> int:
        return len(self.values)

    def codes(self, column: pa.Array, *, of_outputs: bool = False) -> Ints:
        """Codes of an Arrow column of text or integers; null counts as a value. Too many values
        raise TooMuchStateError; of outputs they are UNKNOWN."""
        encoded = column.dictionary_encode(null_encoding="encode")
        table = self._look_up(encoded.dictionary.to_pylist(), of_outputs)
        result: Ints = table[encoded.indices.to_numpy(zero_copy_only=False)]
        return result

    def code(self, value: Hashable) -> int:
        """The code of one value. Raises TooMuchStateError."""
        return int(self._look_up([value], of_outputs=False)[0])

    def value(self, code: int) -> Any:
        """The value of a code; None for UNKNOWN."""
        return None if code == UNKNOWN else self.values[code]

    def _look_up(self, values: list[Any], of_outputs: bool) -> Ints:
        """Codes of distinct values."""
        known = map(self._codes.get, values, repeat(UNKNOWN))
        codes = np.fromiter(known, np.int64, len(values))
        new = np.flatnonzero(codes == UNKNOWN).tolist()
        if of_outputs:
            for position in new:
                codes[position] = self._new_of_output(values[position])
            return codes
        self._unclaimed.check(values[position] for position in new)
        for position in new:
            codes[position] = self._new(values[position])
        for code in self._unclaimed.claim(codes).tolist():
            self._unclaimed_bytes -= getsizeof(self.values[code])
        return codes

    def _new(self, value: Hashable) -> int:
        if len(self.values) >= self.limits.names:
            raise TooMuchStateError(f"The inputs have more than {self.limits.names:,} names.")
        self._codes[value] = len(self.values)
        self.values.append(value)
        return len(self.values) - 1

    def _new_of_output(self, value: Hashable) -> int:
        if len(self.values) >= self.limits.names:
            return UNKNOWN
        size = self._unclaimed_bytes + getsizeof(value)
        if not self._unclaimed.room or size > self.limits.unclaimed_bytes:
            self._unclaimed.refuse([value])
            return UNKNOWN
        self._unclaimed.add(len(self.values), 1)
        self._unclaimed_bytes = size
        return self._new(value)


class Pairs:
    """Dense codes 0, 1, 2, … for pairs of codes, in no particular order.

    Stored in a table of all possible pairs, at 4 bytes per cell, which needs no hashing. If the
    table would exceed `limits.table_cells`, a dict replaces it.
    """

    def __init__(self, limits: StateLimits = LIMITS) -> None:
        self._limits = limits
        self._table = np.full((0, 0), UNKNOWN, np.int32)
        self._codes: dict[tuple[int, int], int] | None = None
        self._unclaimed = Unclaimed(limits.unclaimed)
        self._count = 0
        self._parts = np.zeros((2, 0), np.int64)  # of the first pairs, by code

    def __len__(self) -> int:
        return self._count

    def of(self, left: Ints, right: Ints, *, of_outputs: bool = False) -> Ints:
        """Codes of the pairs (left, right); UNKNOWN if either is. Too many pairs raise
        TooMuchStateError; of outputs they are UNKNOWN."""
        if not len(left):
            return left
        known = (left >= 0) & (right >= 0)
        if not known.all():
            every: Ints = np.full(len(left), UNKNOWN, np.int64)
            every[known] = self.of(left[known], right[known], of_outputs=of_outputs)
            return every
        if self._count > self._limits.names and not of_outputs:
            raise TooMuchStateError(f"There are more than {self._limits.names:,} pairs of keys.")
        self._ensure(int(left.max()) + 1, int(right.max()) + 1)
        codes = self._known(left, right)
        new = codes == UNKNOWN
        if new.any():
            self._add(np.unique(left[new] << _BITS | right[new]), of_outputs)
            codes = self._known(left, right)
        if not of_outputs:
            self._unclaimed.claim(codes)
        return codes

    def _known(self, left: Ints, right: Ints) -> Ints:
        if self._codes is None:
            return self._table[left, right].astype(np.int64)
        pairs = zip(left.tolist(), right.tolist(), strict=True)
        return np.fromiter(map(self._codes.get, pairs, repeat(UNKNOWN)), np.int64, len(left))

    def _add(self, pairs: Ints, of_outputs: bool) -> None:
        """Add distinct new pairs, each as one number."""
        if of_outputs:
            room = min(self._unclaimed.room, max(0, self._limits.names - self._count))
            self._unclaimed.refuse(pairs[room:].tolist())
            pairs = pairs[:room]
            self._unclaimed.add(self._count, len(pairs))
        else:
            self._unclaimed.check(pairs.tolist())
        left, right = pairs >> _BITS, pairs & (1 << _BITS) - 1
        codes = np.arange(self._count, self._count + len(pairs))
        self._count += len(pairs)
        if self._codes is None:
            self._table[left, right] = codes
        else:
            both = zip(left.tolist(), right.tolist(), strict=True)
            self._codes.update(zip(both, codes.tolist(), strict=True))

    def parts(self) -> tuple[Ints, Ints]:
        """Both parts of every pair, indexed by its code."""
        if self._parts.shape[1] == self._count:
            return self._parts[0], self._parts[1]
        if self._codes is None:
            known = np.argwhere(self._table != UNKNOWN)
            codes = self._table[tuple(known.T)]
        else:
            known = np.array([*self._codes], np.int64).reshape(-1, 2)
            codes = np.fromiter(self._codes.values(), np.int64, len(self._codes))
        self._parts = np.empty((2, self._count), np.int64)
        self._parts[:, codes] = known.T
        return self._parts[0], self._parts[1]

    def pair(self, code: int) -> tuple[int, int]:
        """The pair of a code. Scans all pairs: use it for single codes only."""
        if self._codes is not None:
            return next(pair for pair, known in self._codes.items() if known == code)
        left, right = np.argwhere(self._table == code)[0].tolist()
        return left, right

    def _ensure(self, rows: int, columns: int) -> None:
        have = self._table.shape
        if self._codes is not None or (rows <= have[0] and columns <= have[1]):
            return
        shape = [
            max(want, had + had // 2) if want > had else had
            for want, had in zip((rows, columns), have, strict=True)
        ]
        if math.prod(shape) > self._limits.table_cells:
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
        self._pairs = [Pairs(self._dictionaries[0].limits) for _ in self._dictionaries[1:]]

    def __len__(self) -> int:
        return len(self._pairs[-1] if self._pairs else self._dictionaries[0])

    def of(self, columns: Sequence[Ints], *, of_outputs: bool = False) -> Ints:
        """Codes of rows; UNKNOWN if any column's code is. Too many raise TooMuchStateError; of
        outputs they are UNKNOWN."""
        result = columns[0]
        for pairs, column in zip(self._pairs, columns[1:], strict=True):
            result = pairs.of(result, column, of_outputs=of_outputs)
        return result

    def columns(self, codes: Ints) -> list[Ints]:
        """Codes of each column, given those of rows; UNKNOWN if there is no such row."""
        result: list[Ints] = []
        for pairs in reversed(self._pairs):
            parts = [np.append(part, UNKNOWN) for part in pairs.parts()]
            codes = np.where((codes >= 0) & (codes < len(pairs)), codes, UNKNOWN)
            result.insert(0, parts[1][codes])
            codes = parts[0][codes]
        return [codes, *result]

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
        return [dictionary.value(each) for dictionary, each in pairs_of]
