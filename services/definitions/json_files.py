"""Reads JSON as a stream: an object per line, arrays of objects, and objects one after another.

An object with `time` and `states` is an answer of the OpenSky Network ("All State Vectors" of its
REST API): each of its states is a row, an array of 17 values or more in the order of OPENSKY. It
also has the answer's `time`. Their times are in seconds.

The first line that is not empty decides: if it is a value, every line is one, and a mistake costs
its line alone; else, and after `[`, the file is one document, and a mistake refuses it. Lines and
values have at most MAX_LINE characters.

Integers are exact, other numbers are exact decimals unless they are written with an exponent.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TextIO

from services.definitions.csv_files import MAX_LINE, InputError, bounded_lines

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
