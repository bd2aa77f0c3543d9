"""Records of watched topics and verdicts, as columns. Pure."""

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from services.runtime.cells import Ints
from services.watcher.identity import Hashes

Codes = npt.NDArray[np.int32]
EXACT: Final = 0
LATE: Final = 1
DUPLICATE: Final = 2
UNEXPECTED: Final = 3
LOST: Final = 4  # now missing
FOUND: Final = 5  # no longer missing
NONE_MS: Final = -(1 << 62)


@dataclass(frozen=True)
class Records:
    """Records of one side as columns: hash of the identity, time, partition code and offset, code
    of the field that latency is split by; start and end in microseconds: the window of an output,
    for inputs of windows both the event time, otherwise 0."""

    hash: Hashes
    time_ms: Ints
    place: Codes
    offset: Ints
    by: Codes
    start_us: Ints
    end_us: Ints

    def __len__(self) -> int:
        return len(self.hash)

    def take(self, rows: Any) -> "Records":
        """Select rows."""
        return Records(*(getattr(self, one.name)[rows] for one in COLUMNS))

    def in_order(self) -> "Records":
        """Sorted by time, stably."""
        return self.take(np.argsort(self.time_ms, kind="stable"))


COLUMNS: Final = fields(Records)


def no_records() -> Records:
    """No records."""
    numbers, codes = np.empty(0, np.int64), np.empty(0, np.int32)
    return Records(np.empty(0, np.uint64), numbers, codes, numbers, codes, numbers, numbers)


def joined(parts: list[Records]) -> Records:
    """Concatenated records."""
    if len(parts) == 1:
        return parts[0]
    return Records(
        *(np.concatenate([getattr(part, one.name) for part in parts]) for one in COLUMNS)
    )


@dataclass(frozen=True)
class Judged:
    """Verdicts as columns. hash: of the identity; input_ms, output_ms: times of the group and of
    the output, NONE_MS if absent; place, offset: of the output, or else of the input; by: of the
    output or the input; end_us: end of the window of an output, or 0."""

    verdict: npt.NDArray[np.uint8]
    hash: Hashes
    input_ms: Ints
    output_ms: Ints
    place: Codes
    offset: Ints
    by: Codes
    end_us: Ints

    def __len__(self) -> int:
        return len(self.verdict)

    @property
    def about_ms(self) -> Ints:
        """The time of each verdict: of the input, or else of the output."""
        return np.where(self.input_ms == NONE_MS, self.output_ms, self.input_ms)

    def take(self, rows: Any) -> "Judged":
        """Select rows."""
        return Judged(*(getattr(self, one.name)[rows] for one in fields(self)))


def of_outputs(verdict: npt.NDArray[np.uint8], outputs: Records, input_ms: Ints) -> Judged:
    """Verdicts on outputs."""
    times, place = (input_ms, outputs.time_ms), (outputs.place, outputs.offset)
    return Judged(verdict, outputs.hash, *times, *place, outputs.by, outputs.end_us)


def together(parts: list[Judged]) -> Judged:
    """Concatenated verdicts."""
    return Judged(
        *(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(Judged))
    )
