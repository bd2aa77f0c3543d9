"""What a domain's `records.py` provides: the class `Records`, which makes the records of a load.

Everything that a record says is a pure function of the request, the seed and the record's sequence.
So the same seed gives the same bytes, however a load is cut into parts and shared by generators.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.content import Content
from schemas.domain import DomainSpec

Int64s = NDArray[np.int64]
Values = dict[str, NDArray[Any]]

KEY, EVENT_MS = "key", "event_ms"
NAMES_PER_STEP = 50_000  # made at a time: Python's strings take more memory than Arrow's
MAX_PROBE_STEPS = 100_000  # more than there are probe sets in a run's preparation


class NameTable:
    """Strings by number as an Arrow array that grows. `name_of` makes them. One thread."""

    def __init__(self, name_of: Callable[[int], str]) -> None:
        self._name_of = name_of
        self._names = pa.array([], pa.string())

    def table(self, numbers: Int64s) -> pa.StringArray:
        """An array that holds the name of every one of `numbers` at its place."""
        needed = int(numbers.max(initial=-1)) + 1
        if needed > len(self._names):
            steps = range(len(self._names), needed, NAMES_PER_STEP)
            made = [self._make(start, start + NAMES_PER_STEP) for start in steps]
            self._names = pa.concat_arrays([self._names, *made])
        return self._names

    def names(self, numbers: Int64s) -> pa.StringArray:
        """The name of each of `numbers`."""
        return self.table(numbers).take(pa.array(numbers))

    def _make(self, start: int, end: int) -> pa.StringArray:
        return pa.array([self._name_of(number) for number in range(start, end)], pa.string())


@dataclass(frozen=True)
class Setup:
    """What the records of a run are made from.

    folder: of the domain. content: an instance of the domain's own `Content`, where it has one.
    replays: the load has the recorded times (`Records.recorded_times`).
    """

    domain: DomainSpec
    folder: Path
    content: Content
    seed: int
    replays: bool = False


@dataclass(frozen=True)
class Part:
    """Records of a load that are made together. They are due in one second of event time.

    sequences: their numbers in the run, ascending. due_us: when the load shape wants each of them,
    microseconds after load_start_ms (epoch milliseconds). event_second: from the start of the load.
    event_first, event_records: number of the first record of that second, and how many it has.
    scheduled_us: the same as due_us of any records.
    """

    sequences: Int64s
    due_us: Int64s
    load_start_ms: int
    event_second: int
    event_first: int
    event_records: int
    scheduled_us: Callable[[Int64s], Int64s]


@dataclass(frozen=True)
class RecordedTimes:
    """Event times of a recording, one for each turn: ascending, microseconds; and after how long
    the recording begins again."""

    times_us: Int64s
    period_us: int


class Records(Protocol):
    """The records of one run. Its class is named `Records` and is called with a `Setup`.

    turn: the input of each record of a turn, by name. Record k of a load belongs to input
    `turn[k % len(turn)]`; the records of a turn are sent by the same generator.
    bad_rows: rows of files that cannot be used (services/runtime/recordings.py).
    """

    turn: tuple[str, ...]
    bad_rows: list[Any]

    def __init__(self, setup: Setup) -> None:
        """Raises ValueError with one sentence when the records cannot be made."""

    def recorded_times(self) -> RecordedTimes | None:
        """What a replay follows; None when the records have no recorded times."""

    def keys(self, name: str) -> NameTable:
        """The Kafka keys of an input by number."""

    def values(self, part: Part) -> Values:
        """What the records of a part say, as arrays with one element for each. KEY, the number of
        the key, and EVENT_MS, event time in epoch milliseconds, must be among them."""

    def columns(self, name: str, values: Values) -> Mapping[str, Any]:
        """Columns of the schema of an input for some of the values, in any order. `sequence`,
        `run_id` and `scheduled_at` come from the generator; so do the key and the event time
        unless they are among the columns."""

    def probe_set(self, number: int, now_ms: int) -> list[tuple[str, dict[str, Any]]]:
        """Input and fields of records of which every stage publishes something, without the three
        above. It is sent many times a second, `number` counts up from 0."""


def probe_time_ms(domain: DomainSpec, number: int, now_ms: int) -> int:
    """Event time at which the windows of a probe set end: long ago, and each set later than the one
    before by the longest window, so that windows close that wait for event time to pass."""
    longest_s = max((one.window.size_s for one in domain.stages if one.window), default=1)
    windows = now_ms // 1000 // longest_s
    steps_back = max(min(MAX_PROBE_STEPS, windows // 2) - number, 0)
    return (windows - steps_back) * longest_s * 1000
