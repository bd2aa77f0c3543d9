"""Names of sites and lanes as Arrow tables that grow: every record's strings and its key. Pure."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from schemas.content import Content
from services.generator.recording import Int64s, Recording

STEP = 50_000  # names made at a time: Python's strings take more memory than Arrow's


class Names:
    """Strings by number, made on demand by `name_of`. One thread."""

    def __init__(self, name_of: Callable[[int], str]) -> None:
        self._name_of = name_of
        self._names = pa.array([], pa.string())

    def table(self, numbers: Int64s) -> pa.StringArray:
        """An array that holds the name of every one of `numbers` at its place."""
        needed = int(numbers.max(initial=-1)) + 1
        if needed > len(self._names):
            steps = range(len(self._names), needed, STEP)
            made = [self._make(start, start + STEP) for start in steps]
            self._names = pa.concat_arrays([self._names, *made])
        return self._names

    def _make(self, start: int, end: int) -> pa.StringArray:
        return pa.array([self._name_of(number) for number in range(start, end)], pa.string())


def site_names(recording: Recording) -> Names:
    """Names of sites over all copies: those of the recording, then again with a suffix."""
    sites = recording.site_names

    def name_of(number: int) -> str:
        copy, site = divmod(number, len(sites))
        return sites[site] if copy == 0 else f"{sites[site]}#{copy:04d}"

    return Names(name_of)


def lane_names(recording: Recording, content: Content) -> Names:
    """Names of lanes: the recording's own where it gives the lanes, else lane1, lane2, …"""
    recorded = content.lanes_per_site is None and content.keys.distribution == "data"
    if recorded:
        return Names(
            lambda number: recording.lane_names[min(number, len(recording.lane_names) - 1)]
        )
    return Names(lambda number: f"lane{number + 1}")


def addresses(strings: pa.Array, places: "Int64s | slice") -> tuple[Int64s, Int64s]:
    """Where the bytes of the strings at `places` lie in memory, and how many there are.

    Valid while the array is referenced; it must have no nulls and 32-bit offsets.
    """
    _, offsets, data = strings.buffers()
    ends = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    starts = ends[:-1][places].astype(np.int64)
    first = data.address if data is not None else 0
    return first + starts, ends[1:][places] - starts
