"""Reads files of rows, CSV and JSON, as streams. Lines and values have at most MAX_LINE characters.

CSV: UTF-8, with or without a byte order mark, a header, commas. What is not that is refused with
one sentence that says what it is instead.

JSON: an object per line, arrays of objects, and objects one after another. An object with `time`
and `states` is an answer of the OpenSky Network ("All State Vectors" of its REST API): each of its
states is a row, an array of 17 values or more in the order of OPENSKY. It also has the answer's
`time`. Their times are in seconds.

The first line that is not empty decides: if it is a value, every line is one, and a mistake costs
its line alone; else, and after `[`, the file is one document, and a mistake refuses it.

Integers are exact, other numbers are exact decimals unless they are written with an exponent.
"""

import codecs
import csv
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Final, TextIO

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
OPENSKY: Final = (
    *("icao24", "callsign", "origin_country", "time_position", "last_contact", "longitude"),
    *("latitude", "baro_altitude", "on_ground", "velocity", "true_track", "vertical_rate"),
    *("sensors", "geo_altitude", "squawk", "spi", "position_source", "category"),
)
LEAST_VALUES: Final = len(OPENSKY) - 1  # the category is there on request only
_BLANK: Final = " \t\r\n\ufeff"  # between values; the last is a byte order mark
_BLOCK: Final = 2**16
_LONGEST_TOKEN: Final = 16  # characters: two escapes of one character, or -Infinity
_MOST_DIGITS: Final = 4_000
_DEEP: Final = "the value is nested too deeply"


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
    taken: list[str] = []  # lines of the row that is being read

    def lines() -> Iterator[str]:
        for each in bounded_lines(path, text):
            taken.append(each)
            yield each

    # Strict: a quotation mark that is not closed would take all that follows into its cell.
    reader, line = csv.reader(lines(), strict=True), 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            if "limit" in str(error):
                reason = "a cell is too long; a quotation mark may not be closed"
                raise InputError(f"{path}, line {line}: {reason}.") from error
            if len(taken) > 1 or "expected after" not in str(error):
                reason = "a quotation mark is not closed, or something follows it"
                raise InputError(f"{path}, line {line}: {reason}.") from error
            cells = next(csv.reader(taken))  # such as with spaces after a quotation mark
        if cells is None:
            return
        if cells:
            yield line, cells
        taken.clear()
        line = reader.line_num + 1


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


@dataclass(frozen=True)
class JsonRow:
    """A row. names: of its columns, each as often as it occurs. place: of the row in its line, such
    as `state 3: `. time_unit: of its times, if the form of the file says it. problem: why it
    cannot be used; then text is what the file has."""

    line: int
    cells: Mapping[str, Any]
    names: tuple[str, ...] = ()
    place: str = ""
    time_unit: str = ""
    problem: str = ""
    text: str = ""


class _Members(dict[str, Any]):
    """The last members of an object in which a name occurs again. repeated: the others' names."""

    repeated: tuple[str, ...] = ()


def json_rows(path: Path, text: TextIO, *, is_array: bool) -> Iterator[JsonRow]:
    """The rows of a file. is_array: its first character that is not blank is `[`. Raises
    InputError."""
    if is_array:
        yield from _Document(path, text, "", 1).rows()
        return
    is_first = True
    for number, line in enumerate(bounded_lines(path, text), 1):
        content = line.strip(_BLANK)
        if not content:
            continue
        if is_first and content.startswith("["):
            yield from _Document(path, text, line, number).rows()
            return
        try:
            value = _DECODER.decode(content)
        except json.JSONDecodeError as error:
            if is_first and error.pos >= len(content):
                yield from _Document(path, text, line, number).rows()
                return
            yield JsonRow(number, {}, problem=_mistake(error, content), text=content)
        except RecursionError:
            yield JsonRow(number, {}, problem=_DEEP, text=content)
        else:
            yield from _rows_of(number, value, "")
        is_first = False


class _Document:
    """The values of a text, of which at most two blocks or one value are held at a time. start,
    line: what was read before, and the line it is in."""

    def __init__(self, path: Path, text: TextIO, start: str, line: int) -> None:
        self._path, self._text = path, text
        self._held, self._at, self._before = start, 0, 0  # before: of its first line, not held
        self._line, self._counted = line, 0  # the line of the character `_counted`

    def rows(self) -> Iterator[JsonRow]:
        while character := self._next():
            if character != "[":
                yield from _rows_of(self._line_here(), self._value(), "")
                continue
            self._at += 1
            number = 0
            is_open = self._next() != "]"
            while is_open:
                number += 1
                self._next()
                yield from _rows_of(self._line_here(), self._value(), f"object {number}: ")
                following = self._next()
                if following not in (",", "]"):
                    reason = "the array has neither a comma nor an end here"
                    raise self._refused(reason, self._at)
                is_open = following == ","
                self._at += is_open
            self._at += 1

    def _next(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            while self._at < len(self._held):
                if self._held[self._at] not in _BLANK:
                    return self._held[self._at]
                self._at += 1
            if not self._read_more(_BLOCK):
                return ""

    def _value(self) -> Any:
        """The value that begins here."""
        while True:
            refused = self._refused("the file ends within a value", self._at)
            try:
                value, end = _DECODER.raw_decode(self._held, self._at)
            except json.JSONDecodeError as error:
                if not _is_cut(error, self._held):
                    reason = f"{_worded(error)} at character {self._column(error.pos)}"
                    refused = self._refused(reason, error.pos)
                if not _may_continue(error, self._held):
                    raise refused from error
            except RecursionError as error:
                raise self._refused(_DEEP, self._at) from error
            else:
                is_whole = end < len(self._held) or self._held[end - 1] in '}]"'
                if is_whole and end - self._at <= MAX_LINE:
                    self._at = end
                    return value
            length = len(self._held) - self._at
            if length > MAX_LINE:
                raise self._refused(f"a value is longer than {MAX_LINE} characters", self._at)
            if not self._read_more(max(_BLOCK, length)):
                raise refused

    def _read_more(self, characters: int) -> bool:
        """Whether there was more to read."""
        self._line_here()
        end = self._held.rfind("\n", 0, self._at)
        self._before = self._at + self._before if end < 0 else self._at - end - 1
        block = self._text.read(characters)
        self._held, self._at, self._counted = self._held[self._at :] + block, 0, 0
        return bool(block)

    def _line_here(self) -> int:
        self._line += self._held.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _column(self, position: int) -> int:
        end = self._held.rfind("\n", 0, position)
        return position - end + (self._before if end < 0 else 0)

    def _refused(self, reason: str, position: int) -> InputError:
        line = self._line_here() + self._held.count("\n", self._at, position)
        return InputError(f"{self._path}, line {line}: {reason}.")


def _rows_of(line: int, value: Any, place: str) -> Iterator[JsonRow]:
    """The rows of one value: itself, or the states of an answer."""
    if not isinstance(value, dict):
        yield JsonRow(line, {}, (), place, problem="it is not an object", text=text_of(value))
    elif _is_answer(value):
        for number, state in enumerate(value["states"] or (), 1):
            yield _row_of_state(line, value["time"], state, f"{place}state {number}: ")
    else:
        yield JsonRow(line, value, _names(value), place)


def _is_answer(value: Mapping[str, Any]) -> bool:
    if not {"time", "states"} <= value.keys():
        return False
    states = value["states"]
    return isinstance(states, list) or (states is None and len(value) == 2)


def _row_of_state(line: int, time: Any, state: Any, place: str) -> JsonRow:
    if isinstance(state, dict):
        return JsonRow(line, {"time": time, **state}, _names(state), place, "s")
    if isinstance(state, list) and len(state) >= LEAST_VALUES:
        cells = {"time": time, **dict(zip(OPENSKY, state, strict=False))}
        return JsonRow(line, cells, tuple(cells), place, "s")
    values = f"{len(state)} values" if isinstance(state, list) else "no array of values"
    problem = f"it has {values}; a state of OpenSky has {LEAST_VALUES} or {len(OPENSKY)}"
    return JsonRow(line, {}, (), place, problem=problem, text=text_of(state))


def _names(members: Mapping[str, Any]) -> tuple[str, ...]:
    return (*members, *(members.repeated if isinstance(members, _Members) else ()))


def text_of(value: Any) -> str:
    """A value as JSON, to be shown; empty if it is nested too deeply."""
    try:
        return json.dumps(value, default=str)
    except RecursionError:
        return ""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    names = [name for name, _ in pairs]
    for name in members:
        names.remove(name)
    result = _Members(members)
    result.repeated = tuple(names)
    return result


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) < _MOST_DIGITS else float(digits)


def _decimal(text: str) -> Decimal | float:
    return float(text) if "e" in text or "E" in text else Decimal(text)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_members, parse_int=_whole, parse_float=_decimal, parse_constant=float
)


def _is_cut(error: json.JSONDecodeError, text: str) -> bool:
    """Whether a text ends within a value."""
    at_end = error.pos >= len(text.rstrip(_BLANK))
    return at_end or error.msg.startswith("Unterminated string")


def _may_continue(error: json.JSONDecodeError, text: str) -> bool:
    """Whether more text could mend a mistake."""
    return _is_cut(error, text) or error.pos > len(text) - _LONGEST_TOKEN


def _mistake(error: json.JSONDecodeError, text: str) -> str:
    if _is_cut(error, text):
        return "the line ends within a value"
    return f"it is not JSON: {_worded(error)} at character {error.pos + 1}"


def _worded(error: json.JSONDecodeError) -> str:
    return error.msg[0].lower() + error.msg[1:].removesuffix(" at")
