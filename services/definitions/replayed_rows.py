"""The records of recorded rows, replayed in a loop."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.columnar import arrow_types
from schemas.domain import HEADER, InputSpec
from schemas.records import (
    EVENT_MS,
    KEY,
    NameTable,
    Part,
    RecordedTimes,
    Setup,
    Values,
    probe_time_ms,
)
from services.runtime.events import DeadLetter

MIN_PERIOD_US = 1_000_000


class RecordedRecords:
    """A recording replayed in a loop: each turn has one row of every input. See schemas/records.py.

    Event time is the time at which the load shape schedules the turn, in milliseconds, scaled by
    `second_ms`. All other columns come from the row. A replay uses every recorded key `copies`
    times: first with its own name, then with a suffix such as `KEY#0001`.

    rows: the values of each input's columns, by name (services/definitions/recordings.py); a replay
    sorts them by event time. shares_rows: all inputs have the same.
    """

    def __init__(
        self,
        setup: Setup,
        rows: Mapping[str, list[dict[str, Any]]],
        bad_rows: Sequence[DeadLetter] = (),
        *,
        shares_rows: bool = True,
    ) -> None:
        self._setup = setup
        self._inputs = setup.domain.inputs
        self.turn = tuple(each.name for each in self._inputs)
        self.bad_rows = list(bad_rows)
        self._shares_rows = shares_rows
        self._columns = {each.name: self._arrays(each, rows[each.name]) for each in self._inputs}
        keys = [[str(row[each.key]) for row in rows[each.name]] for each in self._inputs]
        coded = [np.unique(texts, return_inverse=True) for texts in keys]
        self._names = {
            name: NameTable(_copied(texts.tolist()))
            for name, (texts, _) in zip(self.turn, coded, strict=True)
        }
        # For all inputs in sequence; and for each, its start, its rows and its keys.
        self._keys = np.concatenate([numbers for _, numbers in coded]).astype(np.int64)
        self._counts = np.array([len(numbers) for _, numbers in coded], np.int64)
        self._starts = np.cumsum(self._counts) - self._counts
        self._key_counts = np.array([len(texts) for texts, _ in coded], np.int64)

    def recorded_times(self) -> RecordedTimes | None:
        """Those of the first input if all inputs have the same rows."""
        if not self._shares_rows:
            return None
        first = self._inputs[0]
        times_us = self._columns[first.name][first.event_time].cast(pa.int64()).to_numpy() * 1000
        steps_us = np.diff(np.unique(times_us))
        step_us = int(np.median(steps_us)) if len(steps_us) else MIN_PERIOD_US
        return RecordedTimes(times_us, int(times_us[-1] - times_us[0]) + step_us)

    def keys(self, name: str) -> NameTable:
        return self._names[name]

    def values(self, part: Part) -> Values:
        """See Records. row: row number in the input's recording."""
        turns, places = np.divmod(part.sequences, len(self.turn))
        turn_us = part.scheduled_us(part.sequences - places)
        copies = self._setup.content.copies if self._setup.replays else 1
        turns, copy = np.divmod(turns, copies)
        rows = turns % self._counts[places]
        keys = self._keys[self._starts[places] + rows] + copy * self._key_counts[places]
        event_ms = part.load_start_ms + turn_us // self._setup.content.second_ms
        return {KEY: keys, EVENT_MS: event_ms, "row": rows}

    def columns(self, name: str, values: Values) -> Mapping[str, Any]:
        (item,) = (each for each in self._inputs if each.name == name)
        generated = {item.event_time}
        if self._columns[name][item.key].type == pa.string():
            generated.add(item.key)
        rows = pa.array(values["row"])
        columns = self._columns[name].items()
        return {column: array.take(rows) for column, array in columns if column not in generated}

    def probe_set(self, number: int, now_ms: int) -> list[tuple[str, dict[str, Any]]]:
        """One row of each input, a different one in each set."""
        event_ms = probe_time_ms(self._setup.domain, number, now_ms)
        result = []
        for each, count in zip(self._inputs, self._counts.tolist(), strict=True):
            columns = self._columns[each.name].items()
            fields = {name: _plain(array[number % count]) for name, array in columns}
            result.append((each.name, fields | {each.event_time: event_ms}))
        return result

    def _arrays(self, input_spec: InputSpec, rows: list[dict[str, Any]]) -> dict[str, pa.Array]:
        if self._setup.replays:
            rows.sort(key=lambda row: row[input_spec.event_time])
        result = {}
        for name, kind in row_types(self._setup, input_spec).items():
            values = [
                row.get(name, 0) for row in rows
            ]  # 0: event time of a load that replays nothing
            if kind == pa.timestamp("ms"):
                values = [value // 1000 for value in values]
            result[name] = pa.array(values, kind)
        return result


def row_types(setup: Setup, input_spec: InputSpec) -> dict[str, pa.DataType]:
    """The columns of an input that the domain fills, with their types."""
    types = arrow_types(setup.domain.codec.schema(input_spec.record))
    return {name: kind for name, kind in types.items() if name not in HEADER}


def _copied(names: Sequence[str]) -> Callable[[int], str]:
    def name_of(number: int) -> str:
        copy, name = divmod(number, len(names))
        return names[name] if copy == 0 else f"{names[name]}#{copy:04d}"

    return name_of


def _plain(value: pa.Scalar) -> Any:
    return value.value if pa.types.is_timestamp(value.type) else value.as_py()
