"""Reads recorded data from CSV or Parquet, with user-defined column names.

An unusable row does not stop the import. It is returned with its line and the reason, to become a
dead letter.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from services.runtime.events import Refused

MAX_ROWS = 1_000_000
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
# A time outside these years has another unit or is not a time.
_FIRST_YEAR, _LAST_YEAR = 1900, 2199
_FIRST_US, _END_US = (
    int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    for year in (_FIRST_YEAR, _LAST_YEAR + 1)
)


class InputError(ValueError):
    """The file is unusable; the text is one sentence."""


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
    bad_rows: list[Refused] = field(default_factory=list)


def read_rows(path: Path, fields: Sequence[FieldSpec], columns: Mapping[str, str]) -> Read:
    """Read a file. columns: its column for each field with another name there.

    Raises InputError if the file is missing, is neither CSV nor Parquet, lacks a column, has more
    than MAX_ROWS rows or no usable one.
    """
    read = Read()
    named = {one.name: columns.get(one.name, one.name) for one in fields}
    try:
        reader = _parquet if path.suffix == ".parquet" else _csv
        for number, (line, row) in enumerate(reader(path, fields, named)):
            if number == MAX_ROWS:
                raise InputError(f"{path} has more than {MAX_ROWS} rows.")
            try:
                read.rows.append(values_of(row, fields, named))
            except ValueError as error:
                text = row if isinstance(row, str) else json.dumps(row, default=str)
                read.bad_rows.append(Refused(str(path), text.encode(), str(error), at=line))
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowInvalid) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
    if not read.rows:
        raise InputError(f"{path} has no usable row.")
    return read


def values_of(
    row: Mapping[str, Any] | str, fields: Sequence[FieldSpec], columns: Mapping[str, str]
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
            values[one.name] = _time_us(given, column)
        elif one.kind == "text":
            values[one.name] = str(given)
        elif one.kind == "flag":
            values[one.name] = _flag(given, column)
        else:
            values[one.name] = _number(one, given, column)
    return values


def _flag(given: Any, column: str) -> bool:
    flag = _FLAGS.get(str(given).lower())
    if flag is None:
        raise ValueError(f"{column} is {given!r}, which is neither true nor false")
    return flag


def _number(one: FieldSpec, given: Any, column: str) -> float | int:
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{column} is {given!r}, which is not a number") from None
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


def _time_us(given: Any, column: str) -> int:
    """A time: text (ISO 8601, UTC by default), a datetime, or a number in epoch milliseconds.

    Raises ValueError for anything else and for years outside 1900 to 2199.
    """
    try:
        if isinstance(given, str) and given.lstrip("-").isdigit():
            given = int(given)
        time_us = given * 1000 if isinstance(given, int) else _moment_us(given)
    except ValueError:
        raise ValueError(f"{column} is {given!r}, which is not a time") from None
    if not _FIRST_US <= time_us < _END_US:
        raise ValueError(
            f"{column} is {given}, which is not in the years {_FIRST_YEAR} to {_LAST_YEAR}; "
            "a number must be milliseconds since 1970"
        )
    return time_us


def _moment_us(given: Any) -> int:
    moment = given if isinstance(given, datetime) else datetime.fromisoformat(str(given))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    whole_s = int(moment.replace(microsecond=0).timestamp())
    return whole_s * 1_000_000 + moment.microsecond


def _csv(
    path: Path, fields: Sequence[FieldSpec], columns: Mapping[str, str]
) -> Iterator[tuple[int, dict[str, str] | str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        _check_columns(path, header, fields, columns)
        for cells in reader:
            if len(cells) == len(header):
                yield reader.line_num, dict(zip(header, cells, strict=True))
            elif cells:
                yield reader.line_num, ",".join(cells)


def _parquet(
    path: Path, fields: Sequence[FieldSpec], columns: Mapping[str, str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    with pq.ParquetFile(path) as file:
        _check_columns(path, file.schema_arrow.names, fields, columns)
        wanted = [name for name in file.schema_arrow.names if name in columns.values()]
        line = 0
        for batch in file.iter_batches(columns=wanted):
            for row in batch.to_pylist():
                line += 1
                yield line, row


def _check_columns(
    path: Path, header: list[str], fields: Sequence[FieldSpec], columns: Mapping[str, str]
) -> None:
    for one in fields:
        column = columns[one.name]
        if column not in header and (column != one.name or one.default is None):
            there = ", ".join(header) or "none"
            raise InputError(f"{path} has no column {column!r} for {one.name}; it has: {there}.")
