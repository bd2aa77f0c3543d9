"""Times in recordings: text in ISO 8601, or numbers since 1970.

A number has the unit that is given. Without one it is milliseconds, and only if it can be nothing
else: from 1973 to 2199, seconds, milliseconds, microseconds and nanoseconds do not overlap. A
wrong unit would replay a recording at a wrong pace.
"""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

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
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_ROUNDED = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?[eE][+-]?[0-9]+")
_SPREADSHEET_DAYS: Final = (15_000, 110_000)  # 1941 to 2201, from 30 December 1899
MOST_SHOWN: Final = 60  # characters of a cell in a message
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WRITE = "write it as 2026-02-01T13:00:00Z"


def time_us(given: Any, column: str, unit: str = "") -> int:
    """A time in epoch microseconds; text without a zone is UTC. unit: of numbers, see above.

    Raises ValueError with one clause for anything else and for years outside 1900 to 2199.
    """
    given = given.strip() if isinstance(given, str) else given
    number = _number(given, column)
    found_us = _moment_us(given, column) if number is None else _scaled(number, column, unit)
    if FIRST_US <= found_us < END_US:
        return found_us
    years = f"which is not in the years {FIRST_YEAR} to {LAST_YEAR}"
    told = f"{column} is {str(given)[:MOST_SHOWN]}, {years}"
    if number is not None:
        looks = _looks_like(number)
        told += f" as {_UNITS[unit or 'ms'][0]}" + (f"; it looks like {looks}" if looks else "")
    raise ValueError(told)


def _number(given: Any, column: str) -> Decimal | None:
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
    return Decimal(given) if _NUMBER.fullmatch(given) else None


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
