"""Latency by partition and by the values of one field, per minute. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from schemas import catalogue
from services.runtime.cells import Ints, count_cells
from services.runtime.reconciling import histograms
from services.watcher.events import Event, Fields
from services.watcher.records import LATE, Judged
from services.watcher.values import UNNAMED, Values

PARTITION: Final = "partition"


class Slices:
    """Latency counts to be published. field: the path that latency is split by, or empty.
    place_name: name of a partition by its code. remember_ms: how long a record is remembered."""

    def __init__(
        self, where: Fields, field: str, place_name: Callable[[int], str], remember_ms: int
    ) -> None:
        self._where, self._field = where, field
        self._place_name = place_name
        self.values = Values(remember_ms)
        self._counts: dict[tuple[int, str, str, int], Counter[int]] = defaultdict(Counter)

    def add(self, judged: Judged, run: Ints) -> None:
        """Count the latencies of outputs that have one."""
        timed = judged.verdict <= LATE
        latency_ms = (judged.output_ms - judged.input_ms)[timed]
        minute = judged.output_ms[timed] // 60_000
        dimensions = [(PARTITION, judged.place[timed], self._place_name)]
        if self._field:
            dimensions.append((self._field, judged.by[timed], self.values.names.__getitem__))
        for name, codes, name_of in dimensions:
            columns = (run[timed], codes.astype(np.int64), minute, latency_ms)
            for (number, code, at, latency), count in count_cells(*columns):
                if code != UNNAMED:
                    value = name_of(code)
                    self._counts[number, name, value, at][latency] += count

    def take(self) -> Iterator[Event]:
        """Events of the counts since the last call."""
        taken, self._counts = self._counts, defaultdict(Counter)
        for (number, dimension, value, at), counts in sorted(taken.items()):
            told = {**self._where, "dimension": dimension, "value": value, "minute": 60_000 * at}
            for part in histograms(counts):
                yield Event(catalogue.SLICES, number, told | part)
