"""Reads recorded data from CSV or Parquet, with user-defined column names.

An unusable row does not stop the import. It is returned with its line and the reason, to become a
dead letter.

Times are text in ISO 8601, or numbers since 1970.

A number has the unit that is given. Without one it is milliseconds, and only if it can be nothing
else: from 1973 to 2199, seconds, milliseconds, microseconds and nanoseconds do not overlap. A
wrong unit would replay a recording at a wrong pace.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from services.definitions.csv_files import InputError, check_header, no_column, opened_csv
from services.runtime.events import DeadLetter

MAX_ROWS = 1_000_000
_PARQUET = b"PAR1"
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
FIRST_YEAR, LAST_YEAR = 1900, 2199
FIRST_US, END_US = (
    int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    for year in (FIRST_YEAR, LAST_YEAR + 1)
)
_LEAST_US: Final = 10**14  # 1973: smaller numbers can be of several units
_UNITS: Final[dict[str, tuple[str, Decimal]]] = {
    "s": ("seconds", Decimal(1_000_000)),
    "ms": ("milliseconds", Decimal(1_000)),
    "us": ("microseconds", Decimal(1)),
    "ns": ("nanoseconds", Decimal("0.001")),
}
_DIGITS = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_ROUNDED = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?[eE][+-]?[0-9]+")
_SPREADSHEET_DAYS: Final = (15_000, 110_000)  # 1941 to 2201, from 30 December 1899
MOST_SHOWN: Final = 60  # characters of a cell in a message
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WRITE = "write it as 2026-02-01T13:00:00Z"


@dataclass(frozen=True)
class FieldSpec:
    """A field of a row. default: for empty cells and missing columns; None: the field is required.
    low, high: bounds of a number. Times become epoch microseconds. flag: true, false, 1 or 0."""

    name: str
    kind: Literal["text", "whole", "number", "time", "flag"]
    default: Any = None
    low: float = -math.inf
    high: float = math.inf


@dataclass
class Read:
    """The result of reading a file. rows: values by field name."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    bad_rows: list[DeadLetter] = field(default_factory=list)


def read_rows(
    path: Path, fields: Sequence[FieldSpec], columns: Mapping[str, str], time_unit: str = ""
) -> Read:
    """Read a file. columns: its column for each field with another name there. time_unit: of times
    that are numbers (services/definitions/recordings.py).

    Raises InputError if the file is missing, is neither CSV nor Parquet, lacks a column or has two
    of its name, has more than MAX_ROWS rows or no usable one.
    """
    read = Read()
    named = {each.name: columns.get(each.name, each.name) for each in fields}
    try:
        is_parquet = _is_parquet(path)
        reader = _parquet if is_parquet else _csv
        for number, (line, row) in enumerate(reader(path, fields, named)):
            if number == MAX_ROWS:
                raise InputError(f"{path} has more than {MAX_ROWS} rows.")
            try:
                read.rows.append(values_of(row, fields, named, time_unit))
            except ValueError as error:
                text = row if isinstance(row, str) else json.dumps(row, default=str)
                letter = DeadLetter(str(path), text.encode(), str(error), offset=line)
                read.bad_rows.append(letter)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except pa.ArrowException as error:
        raise InputError(f"{path} is not a Parquet file that can be read.") from error
    if not read.rows and not read.bad_rows:
        raise InputError(f"{path} has no rows after its header.")
    if not read.rows:
        first, word = read.bad_rows[0], "row" if is_parquet else "line"
        raise InputError(f"{path} has no usable row; {word} {first.offset}: {first.reason}.")
    return read


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_PARQUET)) == _PARQUET or path.suffix == ".parquet"


def values_of(
    row: Mapping[str, Any] | str,
    fields: Sequence[FieldSpec],
    columns: Mapping[str, str],
    time_unit: str = "",
) -> dict[str, Any]:
    """The values of a row; columns maps fields to its columns. Raises ValueError."""
    if isinstance(row, str):
        raise ValueError("the row has more or fewer columns than the header")
    values: dict[str, Any] = {}
    for each in fields:
        column = columns[each.name]
        given = row.get(column)
        if given is None or given == "":
            if each.default is None:
                raise ValueError(f"{column} is empty")
            values[each.name] = each.default
        elif each.kind == "time":
            values[each.name] = time_us(given, column, time_unit)
        elif each.kind == "text":
            values[each.name] = str(given)
        elif each.kind == "flag":
            values[each.name] = _flag(given, column)
        else:
            values[each.name] = _bounded(each, given, column)
    return values


def _flag(given: Any, column: str) -> bool:
    flag = _FLAGS.get(str(given).strip().lower())
    if flag is None:
        raise ValueError(f"{column} is {_shown(given)}, which is neither true nor false")
    return flag


def _bounded(field_spec: FieldSpec, given: Any, column: str) -> float | int:
    number: float | None
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or isinstance(given, bool):
        raise ValueError(f"{column} is {_shown(given)}, which is not a number")
    if not field_spec.low <= number <= field_spec.high or math.isinf(number):
        raise ValueError(f"{column} is {given}, which is not possible")
    if field_spec.kind == "number":
        return number
    if number != int(number):
        raise ValueError(f"{column} is {given}, which is not a whole number")
    try:
        return int(given)  # exact, unlike a float
    except ValueError:
        return int(number)


def _shown(given: Any) -> str:
    return repr(str(given)[:MOST_SHOWN])


def _csv(
    path: Path, fields: Sequence[FieldSpec], columns: Mapping[str, str]
) -> Iterator[tuple[int, dict[str, str] | str]]:
    with opened_csv(path) as (header, rows):
        _check_columns(path, header, fields, columns)
        for line, cells in rows:
            if len(cells) == len(header):
                yield line, dict(zip(header, cells, strict=True))
            else:
                yield line, ",".join(cells)


def _parquet(
    path: Path, fields: Sequence[FieldSpec], columns: Mapping[str, str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        _check_columns(path, schema.names, fields, columns)
        wanted = [name for name in schema.names if name in columns.values()]
        for name in wanted:
            if pa.types.is_nested(schema.field(name).type):
                raise InputError(f"{path}: the column {name} is not of single values.")
        line = 0
        for batch in file.iter_batches(columns=wanted):
            names = batch.schema.names
            plain = [_plain(path, *each) for each in zip(names, batch.columns, strict=True)]
            for row in pa.table(plain, names).to_pylist():
                line += 1
                yield line, row


def _plain(path: Path, name: str, column: pa.Array) -> pa.Array:
    """A column with values that Python has: times in microseconds, text from bytes. Raises
    InputError."""
    kind = column.type
    try:
        if pa.types.is_timestamp(kind):
            whole = pa.timestamp("us", kind.tz)
            return pc.cast(column, options=pc.CastOptions(whole, allow_time_truncate=True))
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        is_time = pa.types.is_timestamp(kind)
        reason = "times that are out of range" if is_time else "bytes that are not text in UTF-8"
        raise InputError(f"{path}: the column {name} has {reason}.") from error
    return column


def _check_columns(
    path: Path, header: Sequence[str], fields: Sequence[FieldSpec], columns: Mapping[str, str]
) -> None:
    check_header(path, header, [columns[each.name] for each in fields])
    for each in fields:
        column = columns[each.name]
        if column not in header and (column != each.name or each.default is None):
            what = "" if column == each.name else f" for {each.name}"
            raise no_column(path, header, column, what)


def time_us(given: Any, column: str, unit: str = "") -> int:
    """A time in epoch microseconds; text without a zone is UTC. unit: of numbers, see above.

    Raises ValueError with one clause for anything else and for years outside 1900 to 2199.
    """
    given = given.strip() if isinstance(given, str) else given
    number = _time_number(given, column)
    found_us = _moment_us(given, column) if number is None else _scaled(number, column, unit)
    if FIRST_US <= found_us < END_US:
        return found_us
    years = f"which is not in the years {FIRST_YEAR} to {LAST_YEAR}"
    problem = f"{column} is {str(given)[:MOST_SHOWN]}, {years}"
    if number is not None:
        looks = _looks_like(number)
        problem += f" as {_UNITS[unit or 'ms'][0]}" + (f"; it looks like {looks}" if looks else "")
    raise ValueError(problem)


def _time_number(given: Any, column: str) -> Decimal | None:
    """The number in a cell; None if it is not one."""
    if isinstance(given, int | float | Decimal) and not isinstance(given, bool):
        number = Decimal(repr(given)) if isinstance(given, float) else Decimal(given)
        if not number.is_finite():
            raise ValueError(f"{column} is {given}, which is not a time")
        return number
    if not isinstance(given, str):
        return None
    if _ROUNDED.fullmatch(given):
        raise ValueError(f"{column} is {given}, which is a rounded number; {_WRITE}")
    return Decimal(given) if _DIGITS.fullmatch(given) else None


def _scaled(number: Decimal, column: str, unit: str) -> int:
    """A number in microseconds. Raises ValueError if its unit is not clear."""
    if unit:
        return int(number * _UNITS[unit][1])
    looks = _looks_like(number)
    if looks.startswith("milliseconds"):
        return int(number * _UNITS["ms"][1])
    if not looks:
        raise ValueError(
            f"{column} is {str(number)[:MOST_SHOWN]}, whose unit is not clear; "
            "add --time-unit s, ms, us or ns (content.time_unit)"
        )
    name = next((unit for unit, (word, _) in _UNITS.items() if looks.startswith(word)), "")
    remedy = f"if so, add --time-unit {name} (content.time_unit)" if name else _WRITE
    raise ValueError(f"{column} is {number}, which looks like {looks}; {remedy}")


def _looks_like(number: Decimal) -> str:
    """What a number can only be, with its time; empty if that is not clear."""
    for form in ("%Y%m%d", "%Y%m%d%H%M", "%Y%m%d%H%M%S"):
        try:
            moment = datetime.strptime(str(number), form).replace(tzinfo=UTC)
        except ValueError:
            continue
        if FIRST_YEAR <= moment.year <= LAST_YEAR and len(str(number)) in (8, 12, 14):
            return f"a date without separators ({moment:%Y-%m-%d})"
    for name, factor in _UNITS.values():
        if _LEAST_US <= abs(number * factor) < END_US:
            moment = _EPOCH + timedelta(microseconds=int(number * factor))
            return f"{name} since 1970 ({moment:%Y-%m-%d})"
    first, last = _SPREADSHEET_DAYS
    if first <= number < last:
        day = date(1899, 12, 30) + timedelta(days=int(number))
        return f"a day of a spreadsheet ({day})"
    return ""


def _moment_us(given: Any, column: str) -> int:
    try:
        moment = given if isinstance(given, datetime) else datetime.fromisoformat(str(given))
    except ValueError:
        shown = str(given)[:MOST_SHOWN]
        raise ValueError(f"{column} is {shown!r}, which is not a time; {_WRITE}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    whole_s = int(moment.replace(microsecond=0).timestamp())
    return whole_s * 1_000_000 + moment.microsecond
