"""Interface of a domain's `records.py`: the class `Records`, which makes the records of a load.

The data of a record is a pure function of the request, the seed and the record's sequence. So the
same seed gives the same bytes, however a load is divided into parts and among generators.
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
NAMES_PER_STEP = 50_000  # names made at a time: Python strings take more memory than Arrow's
MAX_PROBE_STEPS = 100_000  # more than the probe sets of a run's preparation


class NameTable:
    """Strings by number in a growing Arrow array. `name_of` makes them. One thread."""

    def __init__(self, name_of: Callable[[int], str]) -> None:
        self._name_of = name_of
        self._names = pa.array([], pa.string())

    def table(self, numbers: Int64s) -> pa.StringArray:
        """An array with the name of each of `numbers` at its index."""
        held, needed = len(self._names), int(numbers.max(initial=-1)) + 1
        if needed > held:  # by doubling while it is small
            end = max(needed, held + min(held, NAMES_PER_STEP))
            steps = range(held, end, NAMES_PER_STEP)
            added = [self._make(start, min(start + NAMES_PER_STEP, end)) for start in steps]
            self._names = pa.concat_arrays([self._names, *added])
        return self._names

    def names(self, numbers: Int64s) -> pa.StringArray:
        """The name of each of `numbers`."""
        return self.table(numbers).take(pa.array(numbers))

    def _make(self, start: int, end: int) -> pa.StringArray:
        return pa.array([self._name_of(number) for number in range(start, end)], pa.string())


@dataclass(frozen=True)
class Setup:
    """Parameters of the records of a run.

    folder: of the domain. content: an instance of the domain's own `Content`, if it has one.
    replays: the load follows the recorded times (`Records.recorded_times`).
    """

    domain: DomainSpec
    folder: Path
    content: Content
    seed: int
    replays: bool = False


@dataclass(frozen=True)
class Part:
    """Records of a load that are made together. They are due in one second of event time.

    sequences: their numbers in the run, ascending. due_us: their times by the load shape,
    microseconds after load_start_ms (epoch milliseconds). event_second: from the start of the load.
    event_first, event_records: first record of that second, and number of records in it.
    scheduled_us: the due_us of any records.
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
    """Event times of a recording, one per turn: ascending, microseconds; and the period after which
    the recording repeats. per_record: one per record; a turn is then the whole recording."""

    times_us: Int64s
    period_us: int
    per_record: bool = False


class Records(Protocol):
    """The records of one run. The class must be named `Records` and is called with a `Setup`.

    turn: the input of each record of a turn, by name. Record k of a load belongs to input
    `turn[k % len(turn)]`; the records of a turn are sent by the same generator.
    bad_rows: unusable rows of files (services/definitions/recordings.py).
    """

    turn: tuple[str, ...]
    bad_rows: list[Any]

    def __init__(self, setup: Setup) -> None:
        """Raises ValueError with one sentence if the records cannot be made."""

    def recorded_times(self) -> RecordedTimes | None:
        """The times that a replay follows; None if the records have no recorded times."""

    def keys(self, name: str) -> NameTable:
        """The Kafka keys of an input by number."""

    def values(self, part: Part) -> Values:
        """The data of a part's records, as arrays with one element each. Must contain KEY, the
        number of the key, and EVENT_MS, event time in epoch milliseconds."""

    def columns(self, name: str, values: Values) -> Mapping[str, Any]:
        """Columns of an input's schema for some of the values, in any order. `sequence`, `run_id`
        and `scheduled_at` are added by the generator; so are the key and the event time unless they
        are among the columns."""

    def probe_set(self, number: int, now_ms: int) -> list[tuple[str, dict[str, Any]]]:
        """Input and fields of records that make every stage publish, without the three columns
        above. Sent many times a second; `number` counts up from 0."""


def first_probe_set(domain: DomainSpec, *, warm: bool) -> int:
    """Number of the first probe set. warm: the pipelines were kept from the run before. Their
    watermark is its end, so that the sets of a domain whose windows close by event time alone are
    in the present."""
    return MAX_PROBE_STEPS if warm and domain.closes_by_event_time else 0


def probe_time_ms(domain: DomainSpec, number: int, now_ms: int) -> int:
    """Event time at which the windows of a probe set end: in the distant past, each set later than
    the one before by the longest window, so that windows close by event time."""
    longest_s = max((stage.window.size_s for stage in domain.stages if stage.window), default=1)
    windows = now_ms // 1000 // longest_s
    steps_back = max(min(MAX_PROBE_STEPS, windows // 2) - number, 0)
    return (windows - steps_back) * longest_s * 1000
