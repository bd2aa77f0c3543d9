"""Stage kinds without windows, one record at a time. Pure.

A stage takes input rows and returns output rows. A row has all known columns; publishing cuts it
to the columns of its record.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Generic, Protocol, TypeVar

from schemas.domain import RUN_ID, Aggregate, DomainSpec, StageSpec
from services.calibration_pipeline.faults import address_number

Fields = dict[str, Any]
MAX_OPEN = 500_000  # groups kept per stage; the oldest is evicted
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne,
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A record, or a row derived from several.

    input: the input that it is a record of; empty if it derives from several. appended_ms:
    LogAppendTime of its latest input; due_ms: earliest time of publication. number: see faults.py,
    negative for a probe.
    """

    fields: Fields
    input: str
    event_ms: int
    appended_ms: int
    due_ms: int
    number: int

    @property
    def run_id(self) -> str:
        """The run that it belongs to."""
        return str(self.fields[RUN_ID])


class Kind(Protocol):
    """A running stage."""

    def add(self, row: Row) -> list[Row]:
        """The output rows due after one more input row."""


class PerRow:
    """A stage with at most one output per row: copy, decode, filter, lookup."""

    def __init__(self, spec: StageSpec) -> None:
        self._spec = spec

    def add(self, row: Row) -> list[Row]:
        for one in self._spec.where:
            value = row.fields.get(one.column)
            if value is None or not OPERATORS[one.operator](value, one.value):
                return []
        table = self._spec.table
        if table is None:
            return [row]
        key = row.fields.get(table.key)
        entry = None if key is None else table.rows.get(str(key))
        if entry is None:
            return []
        known = dict(zip(table.columns, entry, strict=True))
        return [replace(row, fields=row.fields | known)]


GroupT = TypeVar("GroupT")


class Newest(OrderedDict[Any, GroupT], Generic[GroupT]):
    """Groups by key; evicts the oldest beyond MAX_OPEN."""

    def group(self, key: object, new: Callable[[], GroupT]) -> GroupT:
        """The group of a key, created if missing."""
        found = self.get(key)
        if found is None:
            found = self[key] = new()
            if len(self) > MAX_OPEN:
                self.popitem(last=False)
        return found


@dataclass
class _Joined:
    first: dict[str, Row] = field(default_factory=dict)
    is_published: bool = False


class Join:
    """Joins one record of each input by keys and event time; the first of each counts."""

    def __init__(self, spec: StageSpec, domain: DomainSpec) -> None:
        self._spec = spec
        inputs = domain.inputs_of(spec.name)
        self._inputs = {one.name for one in inputs}
        self._event_time = inputs[0].event_time
        self._groups: Newest[_Joined] = Newest()

    def add(self, row: Row) -> list[Row]:
        if not is_used(row, self._spec, self._inputs):
            return []
        keys = keys_of(row, self._spec)
        group = self._groups.group((row.run_id, *keys.values(), row.event_ms), _Joined)
        group.first.setdefault(row.input, row)
        if group.is_published or set(group.first) != self._inputs:
            return []
        group.is_published = True
        rows = list(group.first.values())
        address = {**keys, self._event_time: row.event_ms}
        group.first = {}
        return [made_of(rows, self._spec, address, row.event_ms, tuple(address.values()))]


def is_used(row: Row, spec: StageSpec, inputs: Collection[str]) -> bool:
    """Whether a stage uses a row: it has the grouping columns, and is a record of one of the
    stage's inputs or derived from several records."""
    is_of_input = not row.input or row.input in inputs
    return is_of_input and all(name in row.fields for name in spec.keys)


def keys_of(row: Row, spec: StageSpec) -> Fields:
    """The grouping columns of a row."""
    return {name: row.fields[name] for name in spec.keys}


def made_of(
    rows: Sequence[Row], spec: StageSpec, columns: Fields, event_ms: int, address: tuple[Any, ...]
) -> Row:
    """A row derived from several: these columns and the stage's aggregates."""
    aggregates = {one.column: aggregated(one, rows) for one in spec.aggregates}
    is_probe = any(row.number < 0 for row in rows)
    return Row(
        fields={RUN_ID: rows[0].run_id} | columns | aggregates,
        input="",
        event_ms=event_ms,
        appended_ms=max(row.appended_ms for row in rows),
        due_ms=max(row.due_ms for row in rows),
        number=-1 if is_probe else address_number(*address),
    )


def aggregated(spec: Aggregate, rows: Sequence[Row]) -> Any:
    """An aggregate over the rows of its inputs; None if there are none."""
    values = [
        row.fields[column]
        for row in sorted(rows, key=lambda row: row.appended_ms)
        for source, _, column in (of.rpartition(".") for of in spec.of)
        if source in ("", row.input) and row.fields.get(column) is not None
    ]
    return FUNCTIONS[spec.function](values) if values else None


FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "first": lambda values: values[0],
    "sum": sum,
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
    "count": len,
    "count_distinct": lambda values: len(set(values)),
}
