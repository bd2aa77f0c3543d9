"""Columns of a domain's records in the form the evaluator compares: text as codes, times as
integers.

Input records become `InputRows`. Filters and lookups (`RowSteps`) apply to input rows and to the
outputs of the stage that they read. `Cells` and `Combination` hold expected columns of outputs.
"""

import json
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from schemas.codec import RecordSchemas
from schemas.domain import (
    SCHEDULED_AT,
    SEQUENCE,
    Aggregate,
    Condition,
    DomainSpec,
    StageSpec,
    Table,
)
from services.evaluator.columnar.columns import LIMITS, UNKNOWN, Bools, Floats, Ints, StateLimits
from services.evaluator.columnar.decode import Decoded
from services.evaluator.columnar.value_codes import Dictionary

Column = np.ndarray[Any, Any]
_DTYPES: dict[str, Any] = {
    "boolean": np.int8,
    "int": np.int32,
    "long": np.int64,
    "float": np.float64,
    "double": np.float64,
    "string": np.int32,  # codes
}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_EXTREME: Mapping[str, Callable[[list[Column]], Column]] = {
    "min": np.fmin.reduce,
    "max": np.maximum.reduce,
}


class NotJudgedError(ValueError):
    """The evaluator cannot judge this domain; the text is one sentence."""


@cache
def column_types(schema_json: str) -> dict[str, str]:
    """Avro types of a record's columns by name, without null and logical types."""
    return {field["name"]: _plain(field["type"]) for field in json.loads(schema_json)["fields"]}


@cache
def nullable_columns(schema_json: str) -> frozenset[str]:
    """Names of a record's columns that may be null."""
    fields = json.loads(schema_json)["fields"]
    return frozenset(each["name"] for each in fields if isinstance(each["type"], list))


def _plain(kind: Any) -> str:
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    return str(kind["type"]) if isinstance(kind, dict) else str(kind)


def dtype_of(avro_type: str) -> Any:
    """The dtype that stores a column of this Avro type. Raises NotJudgedError."""
    if avro_type not in _DTYPES:
        raise NotJudgedError(f"The evaluator cannot compare columns of the Avro type {avro_type}.")
    return _DTYPES[avro_type]


class Dictionaries(defaultdict[str, Dictionary]):
    """A dictionary for each column name, shared by all records of a domain."""

    def __init__(self, limits: StateLimits = LIMITS) -> None:
        super().__init__(lambda: Dictionary(limits))


# Columns beside those of records, whose names have no space; of runs that measure
# `processing_time`: index of the input partition, and the record's offset in it.
SOURCE, OFFSET = "index of the source", "offset of the record"


@dataclass(frozen=True)
class InputRows:
    """Records of one input, one row each, in topic order.

    kind: index of the input in the domain. digest: hash of the whole encoded value. codes: text and
    key columns, by name. numbers: all other columns, by name. Times are in the unit of their names;
    appended_ms is the broker's LogAppendTime.
    """

    kind: int
    appended_ms: Ints
    scheduled_us: Ints
    sequence: Ints
    event_ms: Ints
    digest: Ints
    codes: dict[str, Ints]
    numbers: dict[str, Column]

    def __len__(self) -> int:
        return len(self.sequence)

    def column(self, name: str) -> Column:
        """A column: numbers, or codes of text."""
        return self.numbers[name] if name in self.numbers else self.codes[name]

    def take(self, rows: Bools | Ints | slice) -> "InputRows":
        """The given rows."""
        return InputRows(
            self.kind,
            self.appended_ms[rows],
            self.scheduled_us[rows],
            self.sequence[rows],
            self.event_ms[rows],
            self.digest[rows],
            {name: column[rows] for name, column in self.codes.items()},
            {name: column[rows] for name, column in self.numbers.items()},
        )


@dataclass
class NeededColumns:
    """Input columns that the stages of a run need. values: by their types, text as codes. codes:
    needed as codes, even if they are not text."""

    values: set[str]
    codes: set[str]


class InputMapping:
    """Converts the records of one input to rows."""

    def __init__(
        self, domain: DomainSpec, kind: int, needed: NeededColumns, dictionaries: Dictionaries
    ) -> None:
        spec = domain.inputs[kind]
        schema = domain.codec.schema_json(spec.record)
        types = column_types(schema)
        self._kind = kind
        self._event_time = spec.event_time
        self._dictionaries = dictionaries
        named = [name for name in sorted(needed.values | needed.codes) if name in types]
        for name in named:
            dtype_of(types[name])
            if types[name] != "string" and name in nullable_columns(schema):
                raise NotJudgedError(
                    f"The evaluator cannot judge numbers of inputs that may be null: {name} of "
                    f"{spec.record}."
                )
        self._coded = [n for n in named if types[n] == "string" or n in needed.codes]
        numbers = [n for n in named if types[n] != "string" and n in needed.values]
        self._floats = [n for n in numbers if dtype_of(types[n]) == np.float64]
        self._ints = [n for n in numbers if n not in self._floats]

    def rows(self, decoded: Decoded, appended_ms: Ints, digest: Ints) -> InputRows:
        """Rows of decoded records, given the time and digest of each. Raises TooMuchStateError."""
        numbers: dict[str, Column] = {name: decoded.ints(name) for name in self._ints}
        numbers |= {name: decoded.floats(name) for name in self._floats}
        return InputRows(
            self._kind,
            appended_ms,
            decoded.ints(SCHEDULED_AT),
            decoded.ints(SEQUENCE),
            decoded.ints(self._event_time),
            digest,
            {name: self._dictionaries[name].codes(decoded.coded(name)) for name in self._coded},
            numbers,
        )


class RowSteps:
    """The filters and lookups among some stages, in order, applied to columns of rows."""

    def __init__(
        self, stages: Iterable[StageSpec], codec: RecordSchemas, names: Dictionaries
    ) -> None:
        self._stages = [stage for stage in stages if stage.kind in ("decode", "filter", "lookup")]
        self._types = [column_types(codec.schema_json(stage.record)) for stage in self._stages]
        self._names = names
        self.changes_rows = any(stage.kind != "decode" for stage in self._stages)
        self._holding: dict[Condition, list[bool]] = defaultdict(list)  # by code of the text
        self._tables = {
            stage.name: _TableCodes(stage.table, names)
            for stage in self._stages
            if stage.table is not None
        }

    def needs(self) -> NeededColumns:
        """Columns that the steps read."""
        values = {each.column for stage in self._stages for each in stage.where}
        return NeededColumns(values, {stage.table.key for stage in self._stages if stage.table})

    def added(self) -> set[str]:
        """Columns of the tables."""
        return {name for stage in self._stages if stage.table for name in stage.table.columns}

    def has(self, column: str, in_input: bool) -> bool:
        """Whether a column exists after the steps. in_input: whether the input has it."""
        for stage, types in zip(self._stages, self._types, strict=True):
            is_added = stage.table is not None and column in stage.table.columns
            in_input = (in_input or is_added) and column in types
        return in_input

    def apply(
        self, codes: Mapping[str, Ints], numbers: Mapping[str, Column], count: int
    ) -> tuple[Bools, dict[str, Ints], dict[str, Column]]:
        """Which rows are kept, and the columns of all rows including those of the tables."""
        keep = np.ones(count, bool)
        codes, numbers = dict(codes), dict(numbers)
        for stage in self._stages:
            for condition in stage.where:
                keep &= self._holds(condition, codes, numbers, count)
            if stage.table is not None:
                table = self._tables[stage.name]
                row = table.rows(codes.get(stage.table.key), count)
                keep &= row != UNKNOWN
                codes |= {name: column[row] for name, column in table.codes.items()}
                numbers |= {name: column[row] for name, column in table.numbers.items()}
        return keep, codes, numbers

    def applied(self, rows: InputRows) -> InputRows:
        """Rows of an input that pass, with the columns of the tables."""
        if not self.changes_rows:
            return rows
        keep, codes, numbers = self.apply(rows.codes, rows.numbers, len(rows))
        changed = replace(rows, codes=codes, numbers=numbers)
        return changed if keep.all() else changed.take(keep)

    def _holds(
        self,
        condition: Condition,
        codes: Mapping[str, Ints],
        numbers: Mapping[str, Column],
        count: int,
    ) -> Bools:
        """Which rows satisfy a condition: none in records without its column."""
        name, compare = condition.column, _COMPARE[condition.operator]
        if name in numbers and not isinstance(condition.value, str):
            result: Bools = compare(numbers[name], condition.value)
            return result
        if name in codes and isinstance(condition.value, str):
            holds = self._holding[condition]
            for text in self._names[name].values[len(holds) :]:
                holds.append(text is not None and compare(text, condition.value))
            kept: Bools = np.array([*holds, False], bool)[codes[name]]  # the last is for UNKNOWN
            return kept
        return np.zeros(count, bool)


class _TableCodes:
    """Columns of a table, with an extra last row for UNKNOWN, and the row of each key code."""

    def __init__(self, table: Table, names: Dictionaries) -> None:
        self._rows = {key: row for row, key in enumerate(table.rows)}
        self._keys = names[table.key]
        self._row_of = np.empty(0, np.int64)
        self.codes: dict[str, Ints] = {}
        self.numbers: dict[str, Column] = {}
        for place, name in enumerate(table.columns):
            values = [row[place] for row in table.rows.values()]
            if any(isinstance(value, str) for value in values):
                result = [names[name].code(str(value)) for value in values]
                self.codes[name] = np.array([*result, UNKNOWN], np.int64)
            else:
                self.numbers[name] = np.array([*values, np.nan], np.float64)

    def rows(self, keys: Ints | None, count: int) -> Ints:
        """Row of each key code; UNKNOWN if there is none."""
        if keys is None:
            return np.full(count, UNKNOWN, np.int64)
        known = len(self._row_of)
        if known < len(self._keys):
            new = self._keys.values[known:]
            result = [
                UNKNOWN if each is None else self._rows.get(str(each), UNKNOWN) for each in new
            ]
            self._row_of = np.concatenate([self._row_of, np.array(result, np.int64)])
        if not len(self._row_of):
            return np.full(count, UNKNOWN, np.int64)
        rows: Ints = np.where(keys == UNKNOWN, UNKNOWN, self._row_of[keys])
        return rows


@dataclass(frozen=True)
class ExpectedColumn:
    """An expected column. scale: magnitude for the tolerance, for numbers whose sums engines may
    compute in any order; None if cells must be equal."""

    values: Column
    scale: Floats | None = None

    def same(self, actual: Column, tolerance: float) -> Bools:
        """Which cells have the expected value."""
        if self.scale is None:
            return equal_columns(actual, self.values)
        return near(actual, self.values, tolerance, self.scale)


def near(actual: Column, expected: Column, tolerance: float, scale: Floats) -> Bools:
    """Which cells differ by no more than the tolerance times the scale, or are equal.

    The rounding error of a sum of n doubles in any order is at most (n - 1) · 2⁻⁵³ times the sum of
    the absolute values, to first order (Higham, Accuracy and Stability of Numerical Algorithms,
    §4.2), so that is the scale. Two such sums differ by twice that: less than 1e-9 times the scale
    for four million values. A mean of values with both signs may be small although its error is
    not. If the scale exceeds the largest double, cells must be equal. A column of 32 bits is
    rounded once more.
    """
    if actual.dtype == np.float32:
        tolerance += float(np.finfo(np.float32).eps)
    with np.errstate(invalid="ignore", over="ignore"):  # infinity minus infinity
        near: Bools = np.abs(actual - expected) <= tolerance * scale
    return near & np.isfinite(scale) | equal_columns(actual, expected)


def equal_columns(actual: Column, expected: Column) -> Bools:
    """Which cells are equal; NaN (or null) equals itself. Cells of 32 bits are compared as such."""
    if actual.dtype == np.float32:
        with np.errstate(over="ignore"):
            expected = expected.astype(np.float32)
    if actual.dtype.kind != "f":
        whole: Bools = actual == expected
        return whole
    equal: Bools = (actual == expected) | ((actual != actual) & (expected != expected))  # noqa: PLR0124
    return equal


class InputColumn(NamedTuple):
    """A column of an input; kind: index of the input in the domain."""

    kind: int
    column: str

    def __str__(self) -> str:
        return f"{self.column} of {self.kind}"


class Combination:
    """An aggregate over one value of each source, for the records of a join or of a pair."""

    def __init__(self, spec: Aggregate, is_float: bool) -> None:
        self._spec = spec
        self._is_float = is_float

    def of(self, values: list[Column], appended_ms: list[Ints]) -> ExpectedColumn:
        """The column, given each source's values and append times."""
        function = self._spec.function
        if function == "first":
            first = np.argmin(np.stack(appended_ms), axis=0)
            return ExpectedColumn(np.choose(first, values) if len(values) > 1 else values[0])
        if function == "count":
            return ExpectedColumn(np.full(len(values[0]), len(values)))
        if function == "count_distinct":
            ordered = np.sort(np.stack(values), axis=0)
            return ExpectedColumn(1 + (ordered[1:] != ordered[:-1]).sum(axis=0))
        if function in ("min", "max"):
            return ExpectedColumn(_EXTREME[function](values))
        total: Column = np.add.reduce(values)
        size = np.add.reduce([np.abs(each) for each in values]) if self._is_float else None
        if function == "sum":
            return ExpectedColumn(total, size)
        scale = np.abs(total) if size is None else size
        return ExpectedColumn(total / len(values), scale / len(values))
