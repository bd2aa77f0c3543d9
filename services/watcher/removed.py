"""Stretches of time in which records were removed from the topics of one side before they were
read. Pure."""

from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from services.runtime.cells import Ints


class Removed:
    """Disjoint stretches in time order, with both ends. Those at most `apart_ms` apart are one,
    which bounds their number and changes no answer to a question about longer spans."""

    def __init__(self, apart_ms: int) -> None:
        self._apart_ms = apart_ms
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start_ms: int, end_ms: int) -> None:
        """Add a stretch."""
        first = bisect_left(self._ends, start_ms - self._apart_ms)
        end = first
        while end < len(self._starts) and self._starts[end] <= end_ms + self._apart_ms:
            start_ms = min(start_ms, self._starts[end])
            end_ms = max(end_ms, self._ends[end])
            end += 1
        self._starts[first:end], self._ends[first:end] = [start_ms], [end_ms]

    def touches(self, start_ms: Ints, end_ms: Ints) -> npt.NDArray[np.bool_]:
        """Which of some spans of time a stretch overlaps."""
        if not self._ends:
            return np.zeros(len(start_ms), bool)
        place = np.searchsorted(self._ends, start_ms, "left")
        starts = np.append(np.array(self._starts, np.int64), np.iinfo(np.int64).max)
        found: npt.NDArray[np.bool_] = starts[place] <= end_ms
        return found

    def forget(self, before_ms: int) -> None:
        """Remove the stretches that end before a time."""
        first = bisect_left(self._ends, before_ms)
        del self._starts[:first], self._ends[:first]

    def saved(self) -> list[tuple[int, int]]:
        """As JSON types, for `restore`."""
        return list(zip(self._starts, self._ends, strict=True))

    def restore(self, saved: list[tuple[int, int]]) -> None:
        """Restore saved stretches."""
        self._starts, self._ends = [one[0] for one in saved], [one[1] for one in saved]
