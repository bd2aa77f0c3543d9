"""Reads recorded data from CSV or Parquet, with user-defined column names.

An unusable row does not stop the import. It is returned with its line and the reason, to become a
dead letter.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from services.runtime.csv_files import InputError, check_header, no_column, opened_csv
from services.runtime.events import DeadLetter
from services.runtime.recorded_times import MOST_SHOWN, time_us

MAX_ROWS = 1_000_000
_PARQUET = b"PAR1"
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


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
    that are numbers (services/runtime/recorded_times.py).

    Raises InputError if the file is missing, is neither CSV nor Parquet, lacks a column or has two
    of its name, has more than MAX_ROWS rows or no usable one.
    """
    read = Read()
    named = {one.name: columns.get(one.name, one.name) for one in fields}
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
    for one in fields:
        column = columns[one.name]
        given = row.get(column)
        if given is None or given == "":
            if one.default is None:
                raise ValueError(f"{column} is empty")
            values[one.name] = one.default
        elif one.kind == "time":
            values[one.name] = time_us(given, column, time_unit)
        elif one.kind == "text":
            values[one.name] = str(given)
        elif one.kind == "flag":
            values[one.name] = _flag(given, column)
        else:
            values[one.name] = _number(one, given, column)
    return values


def _flag(given: Any, column: str) -> bool:
    flag = _FLAGS.get(str(given).strip().lower())
    if flag is None:
        raise ValueError(f"{column} is {_shown(given)}, which is neither true nor false")
    return flag


def _number(one: FieldSpec, given: Any, column: str) -> float | int:
    number: float | None
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or isinstance(given, bool):
        raise ValueError(f"{column} is {_shown(given)}, which is not a number")
    if not one.low <= number <= one.high or math.isinf(number):
        raise ValueError(f"{column} is {given}, which is not possible")
    if one.kind == "number":
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
            plain = [_plain(path, *one) for one in zip(names, batch.columns, strict=True)]
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
    check_header(path, header, [columns[one.name] for one in fields])
    for one in fields:
        column = columns[one.name]
        if column not in header and (column != one.name or one.default is None):
            what = "" if column == one.name else f" for {one.name}"
            raise no_column(path, header, column, what)
