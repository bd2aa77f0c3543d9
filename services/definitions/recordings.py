"""Reads recorded data from CSV, JSON or Parquet, with user-defined column names.

A recording is a file or a folder, whose files are read one after another, sorted by name, without
those whose name begins with a dot or an underscore. CSV and JSON may be compressed with gzip or
zstd. Its content says what a file is, and where that leaves it open its name. Files are read as
streams; only the values of the rows are kept.

An unusable row does not stop the import. It is returned with its line and the reason, to become a
dead letter.

Times are text in ISO 8601, or numbers since 1970.

A number has the unit that is given. Without one it is milliseconds, and only if it can be nothing
else: from 1973 to 2199, seconds, milliseconds, microseconds and nanoseconds do not overlap. A
wrong unit would replay a recording at a wrong pace.
"""

import codecs
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from services.definitions.row_files import (
    InputError,
    check_header,
    csv_of,
    header_problem,
    json_rows,
    no_column,
    not_utf8,
    refuse_other_form,
    text_of,
)
from services.runtime.events import MAX_VALUE_BYTES, DeadLetter

MAX_ROWS = 1_000_000
MAX_FILES: Final = 10_000
MOST_SHAPES: Final = 1_000  # sets of names of JSON objects whose columns are remembered
KEPT_BYTES: Final = 64_000_000  # of the text of unusable rows; of later ones only the reason
_PARQUET = b"PAR1"
_COMPRESSIONS: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_JSON_NAMES: Final = (".json", ".jsonl", ".ndjson")
_LOOK_BYTES: Final = 2**16
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
    low, high: bounds of a number. Times become epoch microseconds. flag: true, false, 1 or 0.
    other_names: of its column, used if there is none of its own name."""

    name: str
    kind: Literal["text", "whole", "number", "time", "flag"]
    default: Any = None
    low: float = -math.inf
    high: float = math.inf
    other_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Row:
    """A row before its values are checked. line: of its start, or the number of the row in Parquet,
    as word says. columns: of the fields, by name. place: within the line. time_unit: of its file.
    problem: why it cannot be used; then text is what the file has."""

    line: int
    cells: Mapping[str, Any]
    columns: Mapping[str, str]
    place: str = ""
    time_unit: str = ""
    problem: str = ""
    text: str = ""
    word: Literal["line", "row"] = "line"


@dataclass
class Read:
    """The result of reading a recording. rows: values by field name."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    bad_rows: list[DeadLetter] = field(default_factory=list)


def read_rows(
    path: Path, fields: Sequence[FieldSpec], columns: Mapping[str, str], time_unit: str = ""
) -> Read:
    """Read a file or a folder. columns: its column for each field with another name there.
    time_unit: of times that are numbers (services/definitions/recordings.py).

    Raises InputError if there is no file, if one is of no known form, lacks a column or has two of
    its name, or if there are more than MAX_ROWS rows or no usable one.
    """
    read, first, kept_bytes = Read(), "", 0
    for file in _files(path):
        for row in _rows(file, fields, columns):
            if len(read.rows) + len(read.bad_rows) == MAX_ROWS:
                raise InputError(f"{path} has more than {MAX_ROWS} rows.")
            try:
                read.rows.append(values_of(row, fields, time_unit))
            except ValueError as error:
                value = (row.text or text_of(row.cells)).encode(errors="replace")[:MAX_VALUE_BYTES]
                kept_bytes += len(value)
                kept = value if kept_bytes <= KEPT_BYTES else None
                reason = f"{row.place}{error}"
                read.bad_rows.append(DeadLetter(str(file), kept, reason, offset=row.line))
                place = "" if file == path else f"{file.name}, "
                first = first or f"{place}{row.word} {row.line}: {reason}"
    if not read.rows and not read.bad_rows:
        has_header = path.is_file() and _form(path) in ("CSV", "Parquet")
        raise InputError(f"{path} has no rows{' after its header' if has_header else ''}.")
    if not read.rows:
        raise InputError(f"{path} has no usable row; {first}.")
    return read


def _files(path: Path) -> list[Path]:
    """The files of a recording in their order. Raises InputError."""
    try:
        if not path.is_dir():
            return [path]
        files = sorted(
            each for each in path.iterdir() if each.name[0] not in "._" and each.is_file()
        )
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not files:
        raise InputError(f"{path} has no files.")
    if len(files) > MAX_FILES:
        raise InputError(f"{path} has more than {MAX_FILES} files.")
    return files


def _rows(path: Path, fields: Sequence[FieldSpec], columns: Mapping[str, str]) -> Iterator[_Row]:
    """The rows of a file. Raises InputError."""
    try:
        form = _form(path)
        if form == "Parquet":
            yield from _parquet(path, fields, columns)
            return
        with (
            _decompressed(path) as file,
            io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text,
        ):
            if form == "CSV":
                yield from _csv(path, text, fields, columns)
            else:
                yield from _json(path, text, fields, columns, is_array=form == "array")
    except UnicodeDecodeError as error:
        with _decompressed(path) as file:
            raise not_utf8(path, file) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except pa.ArrowException as error:
        raise InputError(f"{path} is not a Parquet file that can be read.") from error


def _form(path: Path) -> Literal["Parquet", "CSV", "JSON", "array"]:
    """What a file is by its content, else by its name; an array is JSON, too. Raises InputError
    and OSError."""
    with path.open("rb") as plain:
        if plain.read(len(_PARQUET)) == _PARQUET or path.suffix == ".parquet":
            return "Parquet"
    with _decompressed(path) as file:
        start = file.peek(_LOOK_BYTES)
    if start.startswith(_PARQUET):
        raise InputError(f"{path} is compressed Parquet; decompress it first.")
    first = start.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if first in (b"[", b"{"):
        return "array" if first == b"[" else "JSON"
    refuse_other_form(path, start)
    return "JSON" if any(name in _JSON_NAMES for name in path.suffixes[-2:]) else "CSV"


@contextmanager
def _decompressed(path: Path) -> Iterator[io.BufferedReader]:
    """The content of a file, decompressed as it is read. Raises InputError, also while it is
    read."""
    with path.open("rb") as file:
        start = file.read(4)
    name = next((name for magic, name in _COMPRESSIONS.items() if start.startswith(magic)), None)
    if name is None:
        with path.open("rb") as file:
            yield file
        return
    try:
        with pa.CompressedInputStream(pa.OSFile(str(path)), name) as stream:
            yield io.BufferedReader(cast("io.RawIOBase", stream), _LOOK_BYTES)
    except (OSError, pa.ArrowException) as error:
        reason = f"is not a {name} file that can be read"
        if str(error).startswith("Truncated"):
            reason = f"is cut off: its {name} stream has no end"
        raise InputError(f"{path} {reason}.") from error


def columns_of(
    header: Sequence[str], fields: Sequence[FieldSpec], columns: Mapping[str, str]
) -> dict[str, str]:
    """The column of each field: the given one, or that of its name, or one of its other names."""
    return {
        each.name: columns.get(each.name)
        or next((name for name in (each.name, *each.other_names) if name in header), each.name)
        for each in fields
    }


def values_of(row: _Row, fields: Sequence[FieldSpec], time_unit: str = "") -> dict[str, Any]:
    """The values of a row. Raises ValueError."""
    if row.problem:
        raise ValueError(row.problem)
    values: dict[str, Any] = {}
    for each in fields:
        column = row.columns[each.name]
        given = row.cells.get(column)
        if each.kind == "text" and isinstance(given, float) and math.isnan(given):
            given = None  # how a table of numbers has an empty cell
        if given is None or given == "":
            if each.default is None:
                problem = "is empty" if column in row.cells else "is missing"
                raise ValueError(f"{column} {problem}")
            values[each.name] = each.default
        elif isinstance(given, list | dict):
            raise ValueError(f"{column} is not a single value")
        elif each.kind == "time":
            values[each.name] = time_us(given, column, time_unit or row.time_unit)
        elif each.kind == "text":
            values[each.name] = _text(given, column)
        elif each.kind == "flag":
            values[each.name] = _flag(given, column)
        else:
            values[each.name] = _bounded(each, given, column)
    return values


def _text(given: Any, column: str) -> str:
    text = str(given)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{column} has half of a surrogate pair, which is no text") from None
    return text


def _flag(given: Any, column: str) -> bool:
    flag = _FLAGS.get(str(given).strip().lower())
    if flag is None:
        raise ValueError(f"{column} is {_shown(given)}, which is neither true nor false")
    return flag


def _bounded(field_spec: FieldSpec, given: Any, column: str) -> float | int:
    number: float | int | None
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or isinstance(given, bool):
        raise ValueError(f"{column} is {_shown(given)}, which is not a number")
    if field_spec.kind != "number" and math.isfinite(number):
        exact = Decimal(str(given).strip())
        if exact != exact.to_integral_value():
            raise ValueError(f"{column} is {given}, which is not a whole number")
        number = int(exact)
    if not field_spec.low <= number <= field_spec.high or math.isinf(number):
        raise ValueError(f"{column} is {given}, which is not possible")
    return number


def _shown(given: Any) -> str:
    return repr(str(given)[:MOST_SHOWN])


def _csv(
    path: Path, text: io.TextIOWrapper, fields: Sequence[FieldSpec], columns: Mapping[str, str]
) -> Iterator[_Row]:
    header, rows = csv_of(path, text)
    named = _checked_columns(path, header, fields, columns)
    for line, cells in rows:
        if len(cells) == len(header):
            yield _Row(line, dict(zip(header, cells, strict=True)), named)
        else:
            problem = "the row has more or fewer columns than the header"
            yield _Row(line, {}, named, problem=problem, text=",".join(cells))


def _json(
    path: Path,
    text: io.TextIOWrapper,
    fields: Sequence[FieldSpec],
    columns: Mapping[str, str],
    *,
    is_array: bool,
) -> Iterator[_Row]:
    """A name of `columns` that no object has refuses the file."""
    missing, has_rows = set(columns.values()), False

    @lru_cache(MOST_SHAPES)
    def resolved(names: tuple[str, ...]) -> tuple[dict[str, str], str]:
        named = columns_of(names, fields, columns)
        return named, header_problem(names, named.values()).lstrip(": ")

    for row in json_rows(path, text, is_array=is_array):
        has_rows = True
        missing.difference_update(row.names if missing else ())
        named, problem = resolved(row.names)
        reason = row.problem or problem
        yield _Row(row.line, row.cells, named, row.place, row.time_unit, reason, row.text)
    if has_rows and missing:
        raise InputError(f"{path} has no object with {min(missing)!r}.")


def _parquet(path: Path, fields: Sequence[FieldSpec], columns: Mapping[str, str]) -> Iterator[_Row]:
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        named = _checked_columns(path, schema.names, fields, columns)
        wanted = [name for name in schema.names if name in named.values()]
        for name in wanted:
            if pa.types.is_nested(schema.field(name).type):
                raise InputError(f"{path}: the column {name} is not of single values.")
        number = 0
        for batch in file.iter_batches(columns=wanted):
            names = batch.schema.names
            plain = [_plain(path, *each) for each in zip(names, batch.columns, strict=True)]
            for cells in pa.table(plain, names).to_pylist():
                number += 1
                yield _Row(number, cells, named, word="row")


def _plain(path: Path, name: str, column: pa.Array) -> pa.Array:
    """A column with values that Python has: times in microseconds, text from bytes. Raises
    InputError."""
    kind = column.type
    try:
        if pa.types.is_timestamp(kind):
            whole = pa.timestamp("us", kind.tz)
            return pc.cast(column, options=pc.CastOptions(whole, allow_time_truncate=True))
        if pa.types.is_fixed_size_binary(kind):
            return column.cast(pa.binary()).cast(pa.string())
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        is_time = pa.types.is_timestamp(kind)
        reason = "times that are out of range" if is_time else "bytes that are not text in UTF-8"
        raise InputError(f"{path}: the column {name} has {reason}.") from error
    return column


def _checked_columns(
    path: Path, header: Sequence[str], fields: Sequence[FieldSpec], columns: Mapping[str, str]
) -> dict[str, str]:
    named = columns_of(header, fields, columns)
    check_header(path, header, named.values())
    for each in fields:
        column = named[each.name]
        if column not in header and (column != each.name or each.default is None):
            what = "" if column == each.name else f" for {each.name}"
            raise no_column(path, header, column, what)
    return named


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
