"""Make, group and count rows of numpy columns.

>>> list(count_cells(np.array([1, 1, 2]), np.array([5, 5, 5])))
[([1, 5], 2), ([2, 5], 1)]
"""

import math
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
MAX_STRETCHES = 64


def by_value(values: Ints) -> Iterator[tuple[int, slice | Ints]]:
    """Every distinct value once, with its rows in order: a slice if they are contiguous.

    >>> list(by_value(np.array([4, 4, 9])))
    [(4, slice(0, 2, None)), (9, slice(2, 3, None))]
    """
    if not len(values):
        return
    bounds = _bounds(values)
    if len(bounds) <= MAX_STRETCHES and len({*values[bounds[:-1]].tolist()}) == len(bounds) - 1:
        for start, end in pairwise(bounds):
            yield int(values[start]), slice(start, end)
        return
    order = np.argsort(_narrow(values), kind="stable")
    ordered = values[order]
    for start, end in pairwise(_bounds(ordered)):
        yield int(ordered[start]), order[start:end]


def int_pairs(pairs: Iterable[tuple[int, int]], count: int) -> tuple[Ints, Ints]:
    """Two columns from this many pairs.

    >>> [column.tolist() for column in int_pairs([(1, 5), (2, 6)], 2)]
    [[1, 2], [5, 6]]
    """
    values = np.fromiter(chain.from_iterable(pairs), np.int64, 2 * count)
    first, second = values.reshape(-1, 2).T.copy()
    return first, second


def _bounds(values: Ints) -> list[int]:
    """Start of each run of equal values, and the end."""
    return [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)]


def _narrow(values: Ints) -> npt.NDArray[Any]:
    """The values as order-preserving 16-bit integers if they fit: numpy radix-sorts those."""
    low, high = int(values.min()), int(values.max())  # their difference may exceed 64 bits
    return (values - low).astype(np.uint16) if high - low < 1 << 16 else values


def count_cells(*columns: Ints) -> Iterator[tuple[list[int], int]]:
    """Every distinct row of equally long columns, with its number of occurrences.

    >>> list(count_cells(np.array([1, 1, 2]), np.array([5, 5, 5])))
    [([1, 5], 2), ([2, 5], 1)]
    """
    if not len(columns[0]):
        return
    lows = [int(column.min()) for column in columns]
    spans = [int(column.max()) - low + 1 for column, low in zip(columns, lows, strict=True)]
    if math.prod(spans) >= 1 << 62:
        cells, counts = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
        yield from zip(cells.tolist(), counts.tolist(), strict=True)
        return
    key = columns[0] - lows[0]
    for column, low, span in zip(columns[1:], lows[1:], spans[1:], strict=True):
        key = key * span + (column - low)
    if math.prod(spans) <= 4 * len(key) + 4096:
        every = np.bincount(key)
        found = np.flatnonzero(every)
        counts = every[found]
    else:
        found, counts = np.unique(key, return_counts=True)
    rows = np.stack(np.unravel_index(found, spans), axis=1) + np.array(lows, np.int64)
    yield from zip(rows.tolist(), counts.tolist(), strict=True)
