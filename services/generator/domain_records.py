"""The records of a domain: made by its own `records.py`, or replayed from its recording."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.codec import said_by
from schemas.content import OWN_SOURCE
from schemas.domain import HEADER, InputSpec
from schemas.protocol import RunRequest
from schemas.records import (
    EVENT_MS,
    KEY,
    NameTable,
    Part,
    RecordedTimes,
    Records,
    Setup,
    Values,
    probe_time_ms,
)
from services.generator.message_batch import arrow_types
from services.runtime.domains import Domain, content_of, domain_module
from services.runtime.events import Refused
from services.runtime.recordings import FieldSpec, InputError, Read, read_rows

MIN_PERIOD_US = 1_000_000


class DomainCodeError(ValueError):
    """The code of a domain fails; the text is one sentence."""


def new_records(domain: Domain, request: RunRequest) -> Records:
    """The records of a run. Raises ValueError with one sentence."""
    assert request.domain is not None
    setup = Setup(
        domain=request.domain,
        folder=domain.folder,
        content=content_of(domain, request.workload.content),
        seed=request.seed,
        replays=request.workload.load.shape == "replay",
    )
    module = domain_module(domain, "records")
    if module is None:
        return RecordedRecords(setup, domain.recording)
    return OwnRecords(setup, getattr(module, "Records", None))


class OwnRecords:
    """The records of a domain's `records.py`. Whatever its code raises becomes a ValueError with
    one sentence."""

    def __init__(self, setup: Setup, records: Any) -> None:
        self._name = setup.domain.name
        self.own: Any = self._guarded(lambda: records(setup))
        self.turn: tuple[str, ...] = self._guarded(lambda: tuple(self.own.turn))
        self.bad_rows: list[Refused] = self._guarded(lambda: list(self.own.bad_rows))

    def recorded_times(self) -> RecordedTimes | None:
        """See Records."""
        found: RecordedTimes | None = self._call("recorded_times")
        return found

    def keys(self, name: str) -> NameTable:
        """See Records."""
        found: NameTable = self._call("keys", name)
        return found

    def values(self, part: Part) -> Values:
        """See Records."""
        values: Values = self._guarded(lambda: dict(self.own.values(part)))
        lengths = {len(values.get(name, ())) for name in (KEY, EVENT_MS, *values)}
        if lengths != {len(part.sequences)}:
            raise DomainCodeError(
                f"records.py of {self._name} must give {KEY}, {EVENT_MS} and all other values for "
                f"each of {len(part.sequences)} records"
            )
        return values

    def columns(self, name: str, values: Values) -> Mapping[str, Any]:
        """See Records."""
        return dict(self._call("columns", name, values))

    def probe_set(self, number: int, now_ms: int) -> list[tuple[str, dict[str, Any]]]:
        """See Records."""
        return list(self._call("probe_set", number, now_ms))

    def _call(self, method: str, *arguments: Any) -> Any:
        return self._guarded(lambda: getattr(self.own, method)(*arguments))

    def _guarded(self, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except InputError:
            raise
        except (Exception, SystemExit) as error:  # whatever code of the domain raises
            raise DomainCodeError(f"records.py of {self._name} fails: {said_by(error)}") from error


class RecordedRecords:
    """A recording in a loop: each turn has one row of every input. See schemas/records.py.

    Event time is the time at which the load shape wants the turn, in milliseconds, sped up by
    `second_ms`; the other columns are those of the row. In a replay every recorded key is there
    `copies` times, the first one with its own name, later ones with a suffix: `KEY#0001`.
    """

    def __init__(self, setup: Setup, recording: Mapping[str, Path]) -> None:
        self._setup = setup
        self._inputs = setup.domain.inputs
        self.turn = tuple(one.name for one in self._inputs)
        self.bad_rows: list[Refused] = []
        files = _files(setup, recording)
        rows: dict[str, list[dict[str, Any]]] = {}
        for path in set(files.values()):
            inputs = [one for one in self._inputs if files[one.name] == path]
            read = _read(setup, path, inputs)
            self.bad_rows += read.bad_rows
            rows |= {one.name: read.rows for one in inputs}
        self._shares_file = len(set(files.values())) == 1
        self._columns = {one.name: self._arrays(one, rows[one.name]) for one in self._inputs}
        keys = [[str(row[one.key]) for row in rows[one.name]] for one in self._inputs]
        coded = [np.unique(texts, return_inverse=True) for texts in keys]
        self._names = {
            name: NameTable(_copied(texts.tolist()))
            for name, (texts, _) in zip(self.turn, coded, strict=True)
        }
        # Of all inputs one after the other; and of each, where it begins, its rows and its keys.
        self._keys = np.concatenate([numbers for _, numbers in coded]).astype(np.int64)
        self._counts = np.array([len(numbers) for _, numbers in coded], np.int64)
        self._starts = np.cumsum(self._counts) - self._counts
        self._key_counts = np.array([len(texts) for texts, _ in coded], np.int64)

    def recorded_times(self) -> RecordedTimes | None:
        """Those of the first input, where all inputs are in one file."""
        if not self._shares_file:
            return None
        first = self._inputs[0]
        times_us = self._columns[first.name][first.event_time].cast(pa.int64()).to_numpy() * 1000
        steps_us = np.diff(np.unique(times_us))
        step_us = int(np.median(steps_us)) if len(steps_us) else MIN_PERIOD_US
        return RecordedTimes(times_us, int(times_us[-1] - times_us[0]) + step_us)

    def keys(self, name: str) -> NameTable:
        """See Records."""
        return self._names[name]

    def values(self, part: Part) -> Values:
        """See Records. row: of the input's recording."""
        turns, places = np.divmod(part.sequences, len(self.turn))
        turn_us = part.scheduled_us(part.sequences - places)
        copies = self._setup.content.copies if self._setup.replays else 1
        turns, copy = np.divmod(turns, copies)
        rows = turns % self._counts[places]
        keys = self._keys[self._starts[places] + rows] + copy * self._key_counts[places]
        event_ms = part.load_start_ms + turn_us // self._setup.content.second_ms
        return {KEY: keys, EVENT_MS: event_ms, "row": rows}

    def columns(self, name: str, values: Values) -> Mapping[str, Any]:
        """See Records."""
        (one,) = (each for each in self._inputs if each.name == name)
        made = {one.event_time}
        if self._columns[name][one.key].type == pa.string():
            made.add(one.key)
        rows = pa.array(values["row"])
        columns = self._columns[name].items()
        return {column: array.take(rows) for column, array in columns if column not in made}

    def probe_set(self, number: int, now_ms: int) -> list[tuple[str, dict[str, Any]]]:
        """One row of each input, another one in each set."""
        event_ms = probe_time_ms(self._setup.domain, number, now_ms)
        found = []
        for one, count in zip(self._inputs, self._counts.tolist(), strict=True):
            columns = self._columns[one.name].items()
            fields = {name: _plain(array[number % count]) for name, array in columns}
            found.append((one.name, fields | {one.event_time: event_ms}))
        return found

    def _arrays(self, one: InputSpec, rows: list[dict[str, Any]]) -> dict[str, pa.Array]:
        if self._setup.replays:
            rows.sort(key=lambda row: row[one.event_time])
        found = {}
        for name, kind in _types(self._setup, one).items():
            values = [row[name] for row in rows]
            if kind == pa.timestamp("ms"):
                values = [value // 1000 for value in values]
            found[name] = pa.array(values, kind)
        return found


def _files(setup: Setup, recording: Mapping[str, Path]) -> dict[str, Path]:
    """The file of each input. Raises InputError."""
    spec, content = setup.domain, setup.content
    if content.source == "file":
        return {one.name: Path(content.path) for one in spec.inputs}
    if content.source != OWN_SOURCE:
        raise InputError(f"the domain {spec.name} has no source {content.source!r}")
    if not recording:
        raise InputError(f"the domain {spec.name} has neither records.py nor a recording")
    return dict(recording)


def _read(setup: Setup, path: Path, inputs: Sequence[InputSpec]) -> Read:
    """Read the columns of some inputs from one file. Raises InputError."""
    fields = {each.name: each for one in inputs for each in _fields(setup, one)}
    renamed = setup.content.columns
    unknown = sorted(
        set(renamed) - {name for one in setup.domain.inputs for name in _types(setup, one)}
    )
    if unknown:
        raise InputError(f"columns names {unknown[0]!r}; fields are: {', '.join(fields)}")
    return read_rows(path, list(fields.values()), renamed)


def _fields(setup: Setup, one: InputSpec) -> list[FieldSpec]:
    """What to read for an input. Event time is needed only by a replay, which follows it."""
    found = []
    for name, kind in _types(setup, one).items():
        if pa.types.is_timestamp(kind):
            needed = name != one.event_time or setup.replays
            found.append(FieldSpec(name, "time", None if needed else 0))
        elif kind == pa.string():
            found.append(FieldSpec(name, "text", None if name == one.key else ""))
        elif kind == pa.float64():
            found.append(FieldSpec(name, "number"))
        else:
            bits = 31 if kind == pa.int32() else 63
            found.append(
                FieldSpec(name, "whole", None, -(2.0**bits), 2.0**bits - 2.0 ** (bits - 53))
            )
    return found


def _types(setup: Setup, one: InputSpec) -> dict[str, pa.DataType]:
    """The columns of an input that the domain fills, and their types."""
    types = arrow_types(setup.domain.codec.schema(one.record))
    return {name: kind for name, kind in types.items() if name not in HEADER}


def _copied(names: Sequence[str]) -> Callable[[int], str]:
    def name_of(number: int) -> str:
        copy, name = divmod(number, len(names))
        return names[name] if copy == 0 else f"{names[name]}#{copy:04d}"

    return name_of


def _plain(value: pa.Scalar) -> Any:
    return value.value if pa.types.is_timestamp(value.type) else value.as_py()
