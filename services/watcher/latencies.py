"""Exact counts of the latencies of a run, for its thresholds. Pure."""

from collections import Counter
from typing import Final

import numpy as np

from services.runtime.cells import Ints

MOST_NEW: Final = 10_000


class Latencies:
    """Number of outputs by latency in milliseconds: 16 bytes for each distinct latency, and a
    dictionary of at most MOST_NEW that were added last."""

    def __init__(self) -> None:
        self._values = self._counts = np.empty(0, np.int64)
        self._new: Counter[int] = Counter()

    def add(self, latency_ms: int, count: int) -> None:
        """Add outputs with one latency."""
        self._new[latency_ms] += count
        if len(self._new) > MOST_NEW:
            self._merge()

    def columns(self) -> tuple[Ints, Ints]:
        """Latencies, ascending, and their counts."""
        self._merge()
        return self._values, self._counts

    def restore(self, values: Ints, counts: Ints) -> None:
        """Restore saved columns."""
        self._values, self._counts = values, counts

    def counts(self) -> Counter[int]:
        """The counts by latency."""
        values, counts = self.columns()
        return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def _merge(self) -> None:
        if not self._new:
            return
        added = np.array([*self._new.items()], np.int64)
        values = np.concatenate([self._values, added[:, 0]])
        counts = np.concatenate([self._counts, added[:, 1]])
        self._values, place = np.unique(values, return_inverse=True)
        self._counts = np.zeros(len(self._values), np.int64)
        np.add.at(self._counts, place, counts)
        self._new.clear()
