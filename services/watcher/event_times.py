"""Parses event times in all formats to integer microseconds since 1970. Pure."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from schemas.watch import TimeFormat
from services.watcher.decoding import UndecodableError

PER_UNIT: Final[dict[TimeFormat, int]] = {"s": 1_000_000, "ms": 1_000, "us": 1}
MOST_US: Final = 1 << 61  # some 70,000 years
TOO_FAR: Final = "its time is too far from now"
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def microseconds(value: Any, written: TimeFormat) -> int:
    """The event time of a record, truncated to microseconds. Raises UndecodableError."""
    if type(value) is int and written != "iso":
        found = value * PER_UNIT[written]
    else:
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        found = _iso(text) if written == "iso" else _number(text, PER_UNIT[written])
    if not -MOST_US < found < MOST_US:
        raise UndecodableError(TOO_FAR)
    return found


def _iso(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UndecodableError("its time is not in ISO 8601 format") from error
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (zoned - _BEGIN) // _MICROSECOND


def _number(text: str, unit: int) -> int:
    try:
        found = Decimal(text) * unit
        if abs(found) > MOST_US:
            raise UndecodableError(TOO_FAR)
        return int(found.to_integral_value("ROUND_FLOOR"))
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, UndecodableError):
            raise
        raise UndecodableError("its time is not a number") from error
