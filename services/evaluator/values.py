"""Expected columns of outputs: their cells, comparison with actual outputs, and their computation
from one record of each source."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from schemas.domain import Aggregate
from services.evaluator.column_mapping import Column
from services.evaluator.columns import Bools, Floats, Ints


@dataclass(frozen=True)
class Values:
    """An expected column. scale: magnitude for the tolerance, for numbers whose sums engines may
    compute in any order; None if cells must be equal."""

    values: Column
    scale: Floats | None = None

    def same(self, actual: Column, tolerance: float) -> Bools:
        """Which cells have the expected value."""
        if self.scale is None:
            return equal_columns(actual, self.values)
        return near(actual, self.values, tolerance, self.scale)


def near(actual: Column, expected: Column, tolerance: float, scale: Floats) -> Bools:
    """Which cells differ by no more than the tolerance times the scale, or are equal.

    The rounding error of a sum of n doubles in any order is at most (n - 1) · 2⁻⁵³ times the sum of
    the absolute values, to first order (Higham, Accuracy and Stability of Numerical Algorithms,
    §4.2), so that is the scale. Two such sums differ by twice that: less than 1e-9 times the scale
    for four million values. A mean of values with both signs may be small although its error is
    not. If the scale exceeds the largest double, cells must be equal.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # infinity minus infinity
        near: Bools = np.abs(actual - expected) <= tolerance * scale
    return near & np.isfinite(scale) | equal_columns(actual, expected)


def equal_columns(actual: Column, expected: Column) -> Bools:
    """Which cells are equal; NaN (or null) equals itself."""
    if actual.dtype.kind != "f":
        whole: Bools = actual == expected
        return whole
    equal: Bools = (actual == expected) | ((actual != actual) & (expected != expected))  # noqa: PLR0124
    return equal


class Source(NamedTuple):
    """A column of an input; kind: index of the input in the domain."""

    kind: int
    column: str

    def __str__(self) -> str:
        return f"{self.column} of {self.kind}"


class Combination:
    """An aggregate over one value of each source, for the records of a join or of a pair."""

    def __init__(self, spec: Aggregate, is_float: bool) -> None:
        self._spec = spec
        self._is_float = is_float

    def of(self, values: list[Column], appended_ms: list[Ints]) -> Values:
        """The column, given each source's values and append times."""
        function = self._spec.function
        if function == "first":
            first = np.argmin(np.stack(appended_ms), axis=0)
            return Values(np.choose(first, values) if len(values) > 1 else values[0])
        if function == "count":
            return Values(np.full(len(values[0]), len(values)))
        if function == "count_distinct":
            ordered = np.sort(np.stack(values), axis=0)
            return Values(1 + (ordered[1:] != ordered[:-1]).sum(axis=0))
        if function in ("min", "max"):
            return Values(_EXTREME[function](values))
        total: Column = np.add.reduce(values)
        size = np.add.reduce([np.abs(one) for one in values]) if self._is_float else None
        if function == "sum":
            return Values(total, size)
        scale = np.abs(total) if size is None else size
        return Values(total / len(values), scale / len(values))


_EXTREME: Mapping[str, Callable[[list[Column]], Column]] = {
    "min": np.fmin.reduce,
    "max": np.maximum.reduce,
}
