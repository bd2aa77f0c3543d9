"""Counts of cells, from columns, and the difference from counts published before.

Events are additive counts of cells: records of a topic and second, outputs with one latency,
verdicts of one kind. A process that takes over counts again and publishes, for each cell, its own
count minus the published one:

    counts = CountReconciler()
    counts.deduct(topic, fields)       # for every event already published
    counts.count(topic, fields)        # for every event counted again, until it has caught up
    for topic, fields in counts.events(): ...

>>> list(count_cells(np.array([1, 1, 2]), np.array([5, 5, 5])))
[([1, 5], 2), ([2, 5], 1)]
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas import catalogue
from schemas.protocol import VERDICTS

MAX_SAMPLES = 5  # of each verdict per event
Fields = dict[str, Any]
COUNTED = (catalogue.THROUGHPUT, catalogue.LATENCY, catalogue.VERDICTS)
# Address fields of an event by topic; the other fields are counts.
_ADDRESS = {
    catalogue.THROUGHPUT: ("topic", "pipeline", "stage", "second"),
    catalogue.LATENCY: ("pipeline", "stage", "definition", "phase", "second"),
    catalogue.VERDICTS: ("pipeline", "stage", "phase", "second"),
    catalogue.SLICES: ("pipeline", "stage", "dimension", "value", "minute"),
}
_NAMED = {catalogue.THROUGHPUT: ("records", "bytes", "aborted"), catalogue.VERDICTS: VERDICTS}
HISTOGRAMS = (catalogue.LATENCY, catalogue.SLICES)
MOST_LATENCIES = 50_000  # different ones in an event
Address = tuple[Any, ...]
Ints = npt.NDArray[np.int64]
MAX_STRETCHES = 64


class NotRepeatableError(RuntimeError):
    """The new count is lower than the published one for a count that can only grow."""


def counts_of(topic: str, fields: Fields) -> dict[Any, int]:
    """The counts of one event by latency or by name."""
    if topic in HISTOGRAMS:
        return dict(zip(fields["latencies_ms"], fields["counts"], strict=True))
    return {name: fields[name] for name in _NAMED[topic]}


@dataclass(frozen=True)
class CountDifference:
    """A count that differs from the published one, by `by`."""

    topic: str
    address: Fields
    name: Any
    by: int

    def __str__(self) -> str:
        where = " ".join(str(value) for value in self.address.values() if value != "")
        return f"{self.topic} {where}: {self.name} {self.by:+d}"


class CountReconciler:
    """Counts still to be published; negative if a verdict is taken back."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, Address], Counter[Any]] = defaultdict(Counter)
        self._published_samples: set[int] = set()  # 8-byte hashes
        self._samples: dict[tuple[str, Address], list[str]] = defaultdict(list)
        self.counted = Counter(dict.fromkeys(COUNTED, 0))

    def deduct(self, topic: str, fields: Fields) -> None:
        """Subtract one published event."""
        self._add(topic, fields, -1)
        self._published_samples.update(map(hash, fields.get("samples", ())))

    def count(self, topic: str, fields: Fields) -> None:
        """Add one event that was counted again."""
        self._add(topic, fields, 1)
        for sample in fields.get("samples", ()):
            kept = self._samples[topic, _address(topic, fields)]
            if (
                len(kept) < len(VERDICTS) * MAX_SAMPLES
                and hash(sample) not in self._published_samples
            ):
                kept.append(sample)
        self.counted[topic] += sum(
            count for name, count in counts_of(topic, fields).items() if name != "bytes"
        )

    def differences(self) -> Iterator[CountDifference]:
        """Every nonzero difference, in order of topic and address."""
        for (topic, address), cells in sorted(self._cells.items()):
            where = dict(zip(_ADDRESS[topic], address, strict=True))
            for name, count in sorted(cells.items()):
                if count:
                    yield CountDifference(topic, where, name, count)

    def events(self) -> Iterator[tuple[str, Fields]]:
        """The events that correct the bus, with their topics. Raises NotRepeatableError after
        them."""
        lower = ""
        for (topic, address), cells in sorted(self._cells.items()):
            counts = {name: count for name, count in cells.items() if count}
            if topic != catalogue.VERDICTS and min(counts.values(), default=0) < 0:
                lower = lower or f"{topic} {address}: counted {counts} less than was published"
                counts = {name: count for name, count in counts.items() if count > 0}
            if not counts:
                continue
            where = dict(zip(_ADDRESS[topic], address, strict=True))
            if topic in HISTOGRAMS:
                yield from ((topic, where | part) for part in histograms(counts))
            else:
                yield topic, where | _named(topic, counts, self._samples[topic, address])
        if lower:
            raise NotRepeatableError(lower)

    def _add(self, topic: str, fields: Fields, sign: int) -> None:
        cells = self._cells[topic, _address(topic, fields)]
        for name, count in counts_of(topic, fields).items():
            cells[name] += sign * count


def _address(topic: str, fields: Fields) -> Address:
    return tuple(fields[name] for name in _ADDRESS[topic])


def histograms(counts: Mapping[int, int]) -> Iterator[Fields]:
    """Fields of one or more events with these counts by latency: an event of the bus has at most a
    megabyte."""
    latencies = sorted(counts)
    for start in range(0, len(latencies), MOST_LATENCIES):
        part = latencies[start : start + MOST_LATENCIES]
        yield {"latencies_ms": part, "counts": [counts[each] for each in part]}


def _named(topic: str, counts: dict[Any, int], samples: list[str]) -> Fields:
    named: Fields = {name: counts.get(name, 0) for name in _NAMED[topic]}
    return named | {"samples": samples} if topic == catalogue.VERDICTS else named


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
        result = np.flatnonzero(every)
        counts = every[result]
    else:
        result, counts = np.unique(key, return_counts=True)
    rows = np.stack(np.unravel_index(result, spans), axis=1) + np.array(lows, np.int64)
    yield from zip(rows.tolist(), counts.tolist(), strict=True)
