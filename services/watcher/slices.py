"""Latency by partition and by the values of one field, per minute. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from schemas import catalogue
from services.runtime.cells import Ints, count_cells
from services.watcher.events import Event, Fields
from services.watcher.records import LATE, Codes, Judged

PARTITION: Final = "partition"
OTHERS: Final = "(others)"
MOST_VALUES: Final = 200
MOST_CHARACTERS: Final = 200
UNNAMED: Final = -1


class Values:
    """Codes of the first MOST_VALUES values of a field; all others share one code."""

    def __init__(self) -> None:
        self._codes: dict[bytes, int] = {}
        self.names: list[str] = []

    def codes(self, texts: list[bytes | None]) -> Codes:
        """The code of each; UNNAMED if a record lacks the field."""
        found = (UNNAMED if text is None else self._code(text) for text in texts)
        return np.fromiter(found, np.int32, len(texts))

    def _code(self, text: bytes) -> int:
        code = self._codes.get(text)
        if code is not None:
            return code
        if len(self.names) < MOST_VALUES:
            return self._add(text)
        others = self._codes.get(OTHERS.encode())
        return self._add(OTHERS.encode()) if others is None else others

    def _add(self, text: bytes) -> int:
        code = self._codes[text] = len(self.names)
        self.names.append(text.decode("utf-8", "backslashreplace")[:MOST_CHARACTERS])
        return code

    def restore(self, names: list[str]) -> None:
        """Restore saved values."""
        self.names = []
        for name in names:
            self._add(name.encode())


class Slices:
    """Latency counts to be published. field: the path that latency is split by, or empty.
    place_name: name of a partition by its code."""

    def __init__(self, where: Fields, field: str, place_name: Callable[[int], str]) -> None:
        self._where, self._field = where, field
        self._place_name = place_name
        self.values = Values()
        self._counts: dict[tuple[int, str, int, int], Counter[int]] = defaultdict(Counter)

    def add(self, judged: Judged, run: Ints) -> None:
        """Count the latencies of outputs that have one."""
        timed = judged.verdict <= LATE
        latency_ms = (judged.output_ms - judged.input_ms)[timed]
        minute = judged.output_ms[timed] // 60_000
        dimensions: list[tuple[str, npt.NDArray[np.int32]]] = [(PARTITION, judged.place[timed])]
        if self._field:
            dimensions.append((self._field, judged.by[timed]))
        for name, codes in dimensions:
            columns = (run[timed], codes.astype(np.int64), minute, latency_ms)
            for (number, code, at, latency), count in count_cells(*columns):
                if code != UNNAMED:
                    self._counts[number, name, code, at][latency] += count

    def take(self) -> Iterator[Event]:
        """Events of the counts since the last call."""
        taken, self._counts = self._counts, defaultdict(Counter)
        for (number, dimension, code, at), counts in sorted(taken.items()):
            is_place = dimension == PARTITION
            value = self._place_name(code) if is_place else self.values.names[code]
            latencies = sorted(counts)
            yield Event(
                catalogue.SLICES,
                number,
                {
                    **self._where,
                    "dimension": dimension,
                    "value": value,
                    "minute": 60_000 * at,
                    "latencies_ms": latencies,
                    "counts": [counts[one] for one in latencies],
                },
            )
