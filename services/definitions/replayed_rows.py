"""The records of recorded rows, replayed in a loop.

A recording of several inputs is one file, each row of which is a record of every input; or it has
rows of its own for each input. So has a folder with a file or a folder for each input, of its name
(`purchases.csv`, `ads/`).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.columnar import arrow_types
from schemas.content import OWN_SOURCE
from schemas.domain import HEADER, InputSpec
from schemas.records import (
    EVENT_MS,
    KEY,
    Int64s,
    NameTable,
    Part,
    RecordedTimes,
    Setup,
    Values,
    probe_time_ms,
)
from services.definitions.recordings import FieldSpec, Read, read_rows
from services.definitions.row_files import InputError
from services.runtime.events import DeadLetter

Rows = list[dict[str, Any]]
MIN_PERIOD_US = 1_000_000
MAX_TURN = 5_000_000  # records of a replay whose inputs have rows of their own


class RecordedRecords:
    """A recording replayed in a loop. See schemas/records.py.

    A turn has one row of every input; in a replay of inputs with rows of their own it has all rows
    of all inputs, ordered by event time. Event time is the time at which the load shape schedules
    the turn, there the record, in milliseconds, scaled by `second_ms`. All other columns come from
    the row. A replay uses every recorded key `copies` times: first with its own name, then with a
    suffix such as `KEY#0001`.

    rows: the values of each input's columns, by name (services/definitions/recordings.py); a replay
    sorts them by event time. shares_rows: all inputs have the same. Raises InputError.
    """

    def __init__(
        self,
        setup: Setup,
        rows: Mapping[str, Rows],
        bad_rows: Sequence[DeadLetter] = (),
        *,
        shares_rows: bool = True,
    ) -> None:
        self._setup = setup
        self._inputs = setup.domain.inputs
        self._copies = setup.content.copies if setup.replays else 1
        self.bad_rows = list(bad_rows)
        self._columns = {each.name: self._arrays(each, rows[each.name]) for each in self._inputs}
        keys = [[str(row[each.key]) for row in rows[each.name]] for each in self._inputs]
        coded = [np.unique(texts, return_inverse=True) for texts in keys]
        self._names = {
            name: NameTable(_copied(texts.tolist()))
            for name, (texts, _) in zip(self._columns, coded, strict=True)
        }
        # For all inputs in sequence; and for each, its start, its rows and its keys.
        self._keys = np.concatenate([numbers for _, numbers in coded]).astype(np.int64)
        self._counts = np.array([len(numbers) for _, numbers in coded], np.int64)
        self._starts = np.cumsum(self._counts) - self._counts
        self._key_counts = np.array([len(texts) for texts, _ in coded], np.int64)
        self.turn = tuple(self._columns)
        self._merged: Int64s | None = None  # the rows of all inputs in sequence, ordered by time
        if setup.replays and not shares_rows:
            self._merge()

    def _merge(self) -> None:
        if len(self._keys) * self._copies > MAX_TURN:
            raise InputError(f"a replay of several inputs has more than {MAX_TURN} rows and copies")
        self._merged = np.argsort(np.concatenate(self._times_us()), kind="stable")
        names = np.repeat(np.array(list(self._columns), object), self._counts)[self._merged]
        self.turn = tuple(np.repeat(names, self._copies).tolist())

    def _times_us(self) -> list[Int64s]:
        """The event times of each input."""
        columns = (self._columns[each.name][each.event_time] for each in self._inputs)
        return [each.cast(pa.int64()).to_numpy() * 1000 for each in columns]

    def recorded_times(self) -> RecordedTimes:
        times_us = self._times_us()[0]
        if self._merged is not None:
            times_us = np.concatenate(self._times_us())[self._merged]
        steps_us = np.diff(np.unique(times_us))
        step_us = int(np.median(steps_us)) if len(steps_us) else MIN_PERIOD_US
        period_us = int(times_us[-1] - times_us[0]) + step_us
        if self._merged is None:
            return RecordedTimes(times_us, period_us)
        return RecordedTimes(np.repeat(times_us, self._copies), period_us, per_record=True)

    def keys(self, name: str) -> NameTable:
        return self._names[name]

    def values(self, part: Part) -> Values:
        """See Records. row: row number in the input's recording."""
        positions = part.sequences % len(self.turn)
        if self._merged is not None:
            event_us = part.scheduled_us(part.sequences)
            rows, copy = np.divmod(positions, self._copies)
            rows = self._merged[rows]
            places = self._starts.searchsorted(rows, side="right") - 1
            rows = rows - self._starts[places]
        else:
            places = positions
            event_us = part.scheduled_us(part.sequences - places)
            turns, copy = np.divmod(part.sequences // len(self.turn), self._copies)
            rows = turns % self._counts[places]
        keys = self._keys[self._starts[places] + rows] + copy * self._key_counts[places]
        event_ms = part.load_start_ms + event_us // self._setup.content.second_ms
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

    def _arrays(self, input_spec: InputSpec, rows: Rows) -> dict[str, pa.Array]:
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


def recorded(
    setup: Setup,
    recording: Mapping[str, Path],
    fields: Sequence[FieldSpec] = (),
    complete: Callable[[Rows], None] | None = None,
) -> RecordedRecords:
    """The records of the recording that a content names, else of the domain's own. recording: the
    latter's file of each input. fields: of every input; else those of its schema. Only a replay
    reads event times. complete: adds columns to the rows. Raises InputError."""
    files = _files_of_inputs(setup, recording)
    paths = list(dict.fromkeys(files.values()))
    rows: dict[str, Rows] = {}
    bad_rows: list[DeadLetter] = []
    for path in paths:
        inputs = [each for each in setup.domain.inputs if files[each.name] == path]
        read = _read(setup, path, inputs, fields)
        if complete is not None:
            complete(read.rows)
        bad_rows += read.bad_rows
        rows |= {each.name: read.rows for each in inputs}
    return RecordedRecords(setup, rows, bad_rows, shares_rows=len(paths) == 1)


def _files_of_inputs(setup: Setup, recording: Mapping[str, Path]) -> dict[str, Path]:
    """The file or folder of each input. Raises InputError."""
    spec, content = setup.domain, setup.content
    names = [each.name for each in spec.inputs]
    if content.source == "file":
        path = Path(content.path)
        return _named_after(names, path) or dict.fromkeys(names, path)
    if content.source != OWN_SOURCE:
        raise InputError(f"the domain {spec.name} has no source {content.source!r}")
    if not recording:
        raise InputError(f"the domain {spec.name} has neither records.py nor a recording")
    return dict(recording)


def _named_after(names: Sequence[str], path: Path) -> dict[str, Path]:
    """The file or folder of each of several inputs in a folder, by its name up to the first dot;
    empty if none has one. Raises InputError if only some have one, or one has two."""
    if len(names) == 1 or not path.is_dir():
        return {}
    result: dict[str, Path] = {}
    try:
        entries = sorted(each for each in path.iterdir() if each.name[0] not in "._")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    for each in entries:
        name = each.name.split(".")[0]
        if name in result:
            raise InputError(f"{path} has {result[name].name} and {each.name} for {name}.")
        if name in names:
            result[name] = each
    missing = [name for name in names if name not in result]
    if result and missing:
        raise InputError(f"{path} has nothing for {missing[0]}, such as {missing[0]}.csv.")
    if result and len(result) < len(entries):
        other = next(each for each in entries if each not in result.values())
        raise InputError(f"{path} has {other.name}, which belongs to none of {', '.join(names)}.")
    return result


def _read(
    setup: Setup, path: Path, inputs: Sequence[InputSpec], given: Sequence[FieldSpec]
) -> Read:
    """Read the columns of some inputs from one file. Raises InputError."""
    content, fields = setup.content, {}
    known = {item.name: given or _fields(setup, item) for item in setup.domain.inputs}
    names = dict.fromkeys(each.name for every in known.values() for each in every)
    if unknown := sorted(set(content.columns) - set(names)):
        raise InputError(f"columns names {unknown[0]!r}; fields are: {', '.join(names)}")
    for item in inputs:
        for each in known[item.name]:
            if setup.replays or each.name != item.event_time:
                fields[each.name] = each
    return read_rows(path, list(fields.values()), content.columns, content.time_unit)


def _fields(setup: Setup, input_spec: InputSpec) -> list[FieldSpec]:
    """The fields of an input's schema."""
    result = []
    for name, kind in row_types(setup, input_spec).items():
        if pa.types.is_timestamp(kind):
            result.append(FieldSpec(name, "time"))
        elif kind == pa.string():
            result.append(FieldSpec(name, "text", None if name == input_spec.key else ""))
        elif kind == pa.float64():
            result.append(FieldSpec(name, "number"))
        elif kind == pa.bool_():
            result.append(FieldSpec(name, "flag"))
        else:
            bits = 31 if kind == pa.int32() else 63
            result.append(
                FieldSpec(name, "whole", None, -(2.0**bits), 2.0**bits - 2.0 ** (bits - 53))
            )
    return result
