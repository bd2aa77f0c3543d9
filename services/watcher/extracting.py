"""Extracts identity, time and place from the records of a watched topic."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
from confluent_kafka import Message

from schemas.watch import WITH_FIELDS, KeyFormat, Registry, TimeFormat, WatchedTopic
from services.runtime.counting import Ints
from services.watcher.decoding import (
    Decode,
    NoFieldError,
    OtherTypeError,
    UndecodableError,
    decoder,
    field_of,
    key_decoder,
)
from services.watcher.records import SEPARATOR, Hashes, hashes, text_of

KEY_BYTES: Final[dict[KeyFormat, int]] = {"int": 4, "long": 8}
MAX_REASONS: Final = 20  # per topic; further ones are grouped
OTHERS: Final = "other reasons"
HEADER: Final = "header"
Headers = list[tuple[str, bytes | None]] | None  # None if they cannot be read
Find = Callable[[Message, Any, Headers], Any]


PER_UNIT: Final[dict[TimeFormat, int]] = {"s": 1_000_000, "ms": 1_000, "us": 1}
MOST_US: Final = 1 << 61  # some 70,000 years
TOO_FAR: Final = "its time is too far from now"
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def microseconds(value: Any, written: TimeFormat) -> int:
    """The event time of a record, truncated to microseconds. Raises UndecodableError."""
    if type(value) is int and written != "iso":
        result = value * PER_UNIT[written]
    else:
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        result = _iso(text) if written == "iso" else _number(text, PER_UNIT[written])
    if not -MOST_US < result < MOST_US:
        raise UndecodableError(TOO_FAR)
    return result


def _iso(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UndecodableError("its time is not in ISO 8601 format") from error
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (zoned - _BEGIN) // _MICROSECOND


def _number(text: str, unit: int) -> int:
    try:
        result = Decimal(text) * unit
        if abs(result) > MOST_US:
            raise UndecodableError(TOO_FAR)
        return int(result.to_integral_value("ROUND_FLOOR"))
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, UndecodableError):
            raise
        raise UndecodableError("its time is not a number") from error


@dataclass(frozen=True)
class Extracted:
    """Records of one topic that have an identity.

    rows: their indexes in the messages. by: values of the field that latency is split by, as text;
    None if a record lacks it; empty without such a field. times_us: the event time of each, or
    start and end of its window; empty if neither is configured. refused: records without an
    identity by reason. others: records of another type than the watched one, by that type.
    """

    rows: Ints
    hash: Hashes
    by: list[bytes | None]
    times_us: list[tuple[int, ...]] = field(default_factory=list)
    refused: dict[str, "RefusedRecords"] = field(default_factory=dict)
    others: dict[str, "RefusedRecords"] = field(default_factory=dict)


@dataclass
class RefusedRecords:
    """Records refused for one reason: partition and offset of the first, their number, and their
    indexes in the messages."""

    partition: int
    offset: int
    count: int = 1
    rows: list[int] = field(default_factory=list)


class Extractor:
    """Extracts identities from records of one topic. Raises ValueError for invalid schemas."""

    def __init__(self, topic: WatchedTopic, registry: Registry | None) -> None:
        self._decode: Decode | None = decoder(topic, registry) if topic.needs_values else None
        keys = key_decoder(topic, registry) if topic.key in WITH_FIELDS else None
        self._identity = [_finder(path, topic.key, keys) for path in topic.identity]
        self._find_only = self._identity[0] if len(self._identity) == 1 else None
        self._by = _finder(topic.by, topic.key, keys) if topic.by else None
        self._times = [_finder(path, topic.key, keys) for path in topic.times]
        self._reads_headers = any(path.startswith(f"{HEADER}.") for path in topic.paths)
        self._time_format = topic.time_format
        is_key = topic.identity == ("key",) and topic.key == "text"
        self._is_key = is_key and self._by is None and not self._times

    def extract(self, messages: list[Message]) -> Extracted:
        """Extract identities from some messages."""
        if self._is_key and self._decode is None:
            return self._keys(messages)
        rows: list[int] = []
        identities: list[bytes] = []
        by: list[bytes | None] = []
        times: list[tuple[int, ...]] = []
        refused: dict[str, RefusedRecords] = {}
        others: dict[str, RefusedRecords] = {}
        for row, message in enumerate(messages):
            try:
                record = self._record(message)
                headers = headers_of(message) if self._reads_headers else None
                if self._times:
                    times.append(self._times_us(message, record, headers))
                identities.append(self._text(message, record, headers))
            except (UndecodableError, NoFieldError, OtherTypeError) as error:
                side = others if isinstance(error, OtherTypeError) else refused
                _refuse(side, str(error), row, message)
                del times[len(rows) :]
                continue
            rows.append(row)
            if self._by is not None:
                by.append(self._told_apart(message, record, headers))
        return Extracted(np.array(rows, np.int64), hashes(identities), by, times, refused, others)

    def _keys(self, messages: list[Message]) -> Extracted:
        """Use the key's bytes as identity."""
        keys = list(map(Message.key, messages))
        rows = np.arange(len(keys))
        refused: dict[str, RefusedRecords] = {}
        if None in keys:
            for row, key in enumerate(keys):
                if key is None:
                    _refuse(refused, "it has no key", row, messages[row])
            rows = np.array([row for row, key in enumerate(keys) if key is not None], np.int64)
            keys = [key for key in keys if key is not None]
        return Extracted(rows, hashes(keys), [], [], refused)

    def _record(self, message: Message) -> Any:
        if self._decode is None:
            return None
        value = message.value()
        if value is None:
            raise UndecodableError("it has no value")
        return self._decode(value)

    def _text(self, message: Message, record: Any, headers: Headers) -> bytes:
        if self._find_only is not None:
            text = text_of(self._find_only(message, record, headers))
            if text is not None:
                return text
        parts = []
        for find in self._identity:
            text = text_of(find(message, record, headers))
            if text is None:
                raise NoFieldError("a part of its identity is null, a list or a record")
            parts.append(text)
        return SEPARATOR.join(parts)

    def _times_us(self, message: Message, record: Any, headers: Headers) -> tuple[int, ...]:
        result = (find(message, record, headers) for find in self._times)
        times = tuple(microseconds(each, self._time_format) for each in result)
        if times[0] >= times[-1] and len(times) > 1:
            raise UndecodableError("its window ends before it begins")
        return times

    def _told_apart(self, message: Message, record: Any, headers: Headers) -> bytes | None:
        assert self._by is not None
        try:
            return text_of(self._by(message, record, headers))
        except (UndecodableError, NoFieldError):
            return None


def _finder(path: str, key: KeyFormat, decode_key: Decode | None) -> Find:
    """The function that finds the value of a path in a message, its decoded value and its
    headers."""
    if path == "key":
        return lambda message, _record, _headers: _key(message, key)
    where, _, rest = path.partition(".")
    if where == HEADER:
        return lambda _message, _record, headers: _header(headers, rest)
    names = rest.split(".")
    if where == "key" and decode_key is not None:
        return lambda message, _record, _headers: field_of(decode_key(_key(message, "text")), names)
    return lambda _message, record, _headers: field_of(record, names)


def _key(message: Message, kind: KeyFormat) -> Any:
    key = message.key()
    if key is None:
        raise NoFieldError("it has no key")
    if kind not in KEY_BYTES:
        return key
    if len(key) != KEY_BYTES[kind]:
        raise UndecodableError(f"its key of {len(key)} bytes is not of type {kind}")
    return int.from_bytes(key, "big", signed=True)


def headers_of(message: Message) -> Headers:
    """The headers of a message; None if a name is not UTF-8. To be called once per message: after
    such a name, the client's second answer contains a null pointer."""
    try:
        return message.headers() or []
    except (SystemError, UnicodeDecodeError):
        return None


def _header(headers: Headers, name: str) -> Any:
    """The last header of that name, as in Kafka's clients."""
    if headers is None:
        raise UndecodableError("the name of a header is not UTF-8")
    for result, value in reversed(headers):
        if result == name:
            return value
    raise NoFieldError(f"it has no header {name}")


def _refuse(refused: dict[str, RefusedRecords], reason: str, row: int, message: Message) -> None:
    reason = reason if reason in refused or len(refused) < MAX_REASONS else OTHERS
    if reason not in refused:
        refused[reason] = RefusedRecords(message.partition(), message.offset(), 0)
    refused[reason].count += 1
    refused[reason].rows.append(row)


def sizes(messages: list[Message]) -> Iterator[int]:
    """Size of each value in bytes."""
    return map(len, messages)
