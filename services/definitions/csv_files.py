"""Reads CSV: UTF-8, with or without a byte order mark, a header, commas.

What is not that is refused with one sentence that says what it is instead.
"""

import codecs
import csv
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

Row = tuple[int, list[str]]
"""The first line of a row in its file, from 1, and its cells."""
_OTHER_FILES: Final = {
    codecs.BOM_UTF16_LE: "is in UTF-16; save it as UTF-8",
    codecs.BOM_UTF16_BE: "is in UTF-16; save it as UTF-8",
    b"PK\x03\x04": "is a workbook or an archive; save the table as CSV",
    b"\xd0\xcf\x11\xe0": "is a workbook; save the table as CSV",
    b"\x1f\x8b": "is compressed; decompress it first",
    b"\x28\xb5\x2f\xfd": "is compressed; decompress it first",
    b"BZh": "is compressed; decompress it first",
    b"{": "is JSON; only CSV and Parquet can be read",
    b"[": "is JSON; only CSV and Parquet can be read",
}
_OTHER_SEPARATORS: Final = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


class InputError(ValueError):
    """The file is unusable; the text is one sentence."""


@contextmanager
def opened_csv(path: Path) -> Iterator[tuple[list[str], Iterator[Row]]]:
    """The header of a file, without spaces around its cells, and its rows without blank lines.
    Raises InputError, also while the rows are read."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
        for magic, reason in _OTHER_FILES.items():
            if start.startswith(magic):
                raise InputError(f"{path} {reason}.")
        with path.open(newline="", encoding="utf-8-sig") as text:
            rows = _rows(text, path)
            _, header = next(rows, (0, []))
            if not header:
                raise InputError(f"{path} is empty.")
            yield [cell.strip() for cell in header], rows
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        line = _undecodable_line(path)
        raise InputError(f"{path} is not in UTF-8 (line {line}); save it as UTF-8.") from error


def check_header(path: Path, header: Sequence[str], columns: Collection[str]) -> None:
    """Raise InputError if the header leaves open which column one of `columns` is."""
    for column in columns:
        same = [each for each in header if each.strip().casefold() == column.strip().casefold()]
        if len(same) > 1 and len(set(same)) == 1:
            raise InputError(f"{path}: the column {same[0]} occurs {_times(len(same))}.")
        if len(same) > 1:
            names = " and ".join(map(repr, same))
            raise InputError(f"{path}: the columns {names} differ only in case or spaces.")
        if same and column not in same:
            raise InputError(f"{path} has no column {column!r}, but {same[0]!r}.")


def no_column(path: Path, header: Sequence[str], column: str, what: str) -> InputError:
    """The error for a column that is not there. what: what it is for, such as ` for price`."""
    if len(header) == 1:
        for mark, name in _OTHER_SEPARATORS.items():
            if mark in header[0]:
                return InputError(f"{path} has {name} between its columns; save it with commas.")
    there = ", ".join(each for each in header if each)[:500] or "none"
    return InputError(f"{path} has no column {column!r}{what}; it has: {there}.")


def _rows(text: TextIO, path: Path) -> Iterator[Row]:
    reader, line = csv.reader(text), 1
    try:
        for cells in reader:
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path}, line {line}: a cell is too long; a quotation mark may not be closed."
        ) from error


def _undecodable_line(path: Path) -> int:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
