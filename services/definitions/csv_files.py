"""Reads CSV: UTF-8, with or without a byte order mark, a header, commas.

What is not that is refused with one sentence that says what it is instead. A file is read as a
stream of lines of at most MAX_LINE characters.
"""

import codecs
import csv
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, TextIO

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
    b"{": "is JSON; save the table as CSV",
    b"[": "is JSON; save the table as CSV",
}
MAX_LINE: Final = 16 * 2**20  # characters: an answer of OpenSky for the whole world has two million
_BLOCK_BYTES: Final = 2**16
_OTHER_SEPARATORS: Final = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


class InputError(ValueError):
    """The file is unusable; the text is one sentence."""


@contextmanager
def opened_csv(path: Path) -> Iterator[tuple[list[str], Iterator[Row]]]:
    """The header of a file, without spaces around its cells, and its rows without blank lines.
    Raises InputError, also while the rows are read."""
    try:
        with path.open("rb") as file:
            refuse_other_form(path, file.read(4))
        with path.open(newline="", encoding="utf-8-sig") as text:
            yield csv_of(path, text)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        with path.open("rb") as file:
            raise not_utf8(path, file) from error


def csv_of(path: Path, text: TextIO) -> tuple[list[str], Iterator[Row]]:
    """As `opened_csv`, from the text of a file, opened without translating ends of lines."""
    rows = _rows(text, path)
    _, header = next(rows, (0, []))
    if not header:
        raise InputError(f"{path} is empty.")
    return [cell.strip() for cell in header], rows


def refuse_other_form(path: Path, start: bytes) -> None:
    """Raise InputError if the first four bytes of a file are not those of text."""
    for magic, reason in _OTHER_FILES.items():
        if start.startswith(magic):
            raise InputError(f"{path} {reason}.")


def not_utf8(path: Path, file: IO[bytes]) -> InputError:
    """The error for text with bytes that are not UTF-8, by its first such line. file: from its
    start."""
    decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
    try:
        while block := file.read(_BLOCK_BYTES):
            decoder.decode(block)
            line += block.count(b"\n")
    except UnicodeDecodeError as error:
        line += error.object[: error.start].count(b"\n")
    return InputError(f"{path} is not in UTF-8 (line {line}); save it as UTF-8.")


def bounded_lines(path: Path, text: TextIO) -> Iterator[str]:
    """The lines of a text with their ends. Raises InputError for one above MAX_LINE."""
    number = 0
    while line := text.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise InputError(f"{path}, line {number} is longer than {MAX_LINE} characters.")
        yield line


def check_header(path: Path, header: Sequence[str], columns: Collection[str]) -> None:
    """Raise InputError if the header leaves open which column one of `columns` is."""
    if problem := header_problem(header, columns):
        raise InputError(f"{path}{problem}.")


def header_problem(header: Sequence[str], columns: Collection[str]) -> str:
    """Why a header leaves open which column one of `columns` is, to follow the name of its file;
    else empty."""
    for column in columns:
        same = [each for each in header if each.strip().casefold() == column.strip().casefold()]
        if len(same) > 1 and len(set(same)) == 1:
            return f": the column {same[0]} occurs {_times(len(same))}"
        if len(same) > 1:
            names = " and ".join(map(repr, same))
            return f": the columns {names} differ only in case or spaces"
        if same and column not in same:
            return f" has no column {column!r}, but {same[0]!r}"
    return ""


def no_column(path: Path, header: Sequence[str], column: str, what: str) -> InputError:
    """The error for a column that is not there. what: what it is for, such as ` for price`."""
    if len(header) == 1:
        for mark, name in _OTHER_SEPARATORS.items():
            if mark in header[0]:
                return InputError(f"{path} has {name} between its columns; save it with commas.")
    there = ", ".join(each for each in header if each)[:500] or "none"
    return InputError(f"{path} has no column {column!r}{what}; it has: {there}.")


def _rows(text: TextIO, path: Path) -> Iterator[Row]:
    reader, line = csv.reader(bounded_lines(path, text)), 1
    try:
        for cells in reader:
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path}, line {line}: a cell is too long; a quotation mark may not be closed."
        ) from error


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
