"""Extracts identity, time and place from the records of a watched topic."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Literal

import numpy as np
from confluent_kafka import Message

from schemas.watch import (
    TIMESTAMP,
    KeyFormat,
    Registry,
    TimeFormat,
    Wanted,
    WatchedTopic,
    names_of,
)
from services.definitions.avro_schemas import Milliseconds, Timestamp
from services.runtime.counting import Ints
from services.watcher.decoding import (
    Decode,
    NoFieldError,
    NotConcerned,
    NotConcernedError,
    decoder,
    field_of,
)
from services.watcher.records import SEPARATOR, Hashes, hashes, text_of
from services.watcher.schema_ids import Headers, UndecodableError, framing_of

# How Kafka's serialisers write numbers.
NUMBERS: Final[dict[KeyFormat, struct.Struct]] = {
    "short": struct.Struct(">h"),
    "int": struct.Struct(">i"),
    "long": struct.Struct(">q"),
    "float": struct.Struct(">f"),
    "double": struct.Struct(">d"),
}
# What follows a key, milliseconds: the start of its window; the last millisecond of its session and
# the first; in the changelog of a window store, the start and a number.
KEY_WINDOWS: Final = {
    "time": struct.Struct(">q"),
    "session": struct.Struct(">qq"),
    "store": struct.Struct(">qi"),
}
# Of Debezium's change events: the state after the change, and the operations without one.
AFTER: Final = "after"
DELETES: Final = ("d", "t")
MAX_SHOWN: Final = 60
MAX_REASONS: Final = 20  # per topic; further ones are grouped
OTHERS: Final = "other reasons"
HEADER: Final = "header"
Find = Callable[["_Record"], Any]
RefusedKind = Literal["refused"] | NotConcerned
_UNREAD: Final = object()
UNITS_NS: Final[dict[TimeFormat, int]] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
UNITS: Final[dict[TimeFormat, str]] = {
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}
FIRST_US: Final = 946_684_800_000_000  # the year 2000
LAST_US: Final = 4_102_444_800_000_000  # 2100
MOST_US: Final = 1 << 61  # some 70,000 years
TOO_FAR: Final = "its time is too far from now"
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def microseconds(value: Any, written: TimeFormat) -> int:
    """The event time of a record, truncated to microseconds. Raises UndecodableError."""
    if isinstance(value, Timestamp):
        return _near(value.event_time_us)
    if type(value) is int and written != "iso":
        result = value * UNITS_NS[written] // 1_000
    else:
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        result = _iso(text) if written == "iso" else _number(text, UNITS_NS[written])
    if written != "iso":
        _check_unit(result, written)
    return _near(result)


def _check_unit(moment_us: int, written: TimeFormat) -> None:
    """Raise UndecodableError for a number that is a time of this century in another unit alone."""
    if FIRST_US < moment_us < LAST_US:
        return
    for unit, size_ns in UNITS_NS.items():
        if FIRST_US < moment_us * size_ns // UNITS_NS[written] < LAST_US:
            raise UndecodableError(
                f"its time seems to be in {UNITS[unit]} instead of {UNITS[written]} (time_format)"
            )


def _near(moment_us: int) -> int:
    if not -MOST_US < moment_us < MOST_US:
        raise UndecodableError(TOO_FAR)
    return moment_us


def _iso(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UndecodableError("its time is not in ISO 8601 format") from error
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (zoned - _BEGIN) // _MICROSECOND


def _number(text: str, unit_ns: int) -> int:
    try:
        result = Decimal(text) * unit_ns / 1_000
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
    identity by reason. others: records that do not concern the watch, by reason.
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
    indexes in the messages; kind: as in NotConcernedError."""

    partition: int
    offset: int
    count: int = 1
    rows: list[int] = field(default_factory=list)
    kind: RefusedKind = "refused"


class Extractor:
    """Extracts identities from records of one topic. Raises ValueError for invalid schemas."""

    def __init__(self, topic: WatchedTopic, registry: Registry | None) -> None:
        decode = decoder(topic.values, registry) if topic.needs_values else None
        decode_key = decoder(topic.keys, registry) if topic.needs_keys else None
        self._reading = _Decoding(topic, decode, decode_key)
        self._identity = [_finder(path, topic) for path in topic.identity]
        self._find_only = self._identity[0] if len(self._identity) == 1 else None
        self._where = [
            _condition(path, _finder(path, topic), wanted) for path, wanted in topic.where.items()
        ]
        self._by = _finder(topic.by, topic) if topic.by else None
        self._times = [_finder(path, topic) for path in topic.times]
        self._time_format = topic.time_format
        self._window_us = topic.window_ms * 1_000
        self._window_ends = bool(topic.end)
        self._key_window = topic.key_window
        self._has_times = bool(topic.times or topic.key_window)
        self._envelopes = _envelopes(topic)
        self._checks_type = decode is not None and bool(topic.message)
        plain = topic.identity == ("key",) and topic.key == "text"
        needs = (topic.needs_values, topic.where, topic.by, self._has_times)
        self._is_key = plain and not any(needs)

    def extract(self, messages: list[Message]) -> Extracted:
        """Extract identities from some messages."""
        if self._is_key:
            return self._keys(messages)
        rows: list[int] = []
        identities: list[bytes] = []
        by: list[bytes | None] = []
        times: list[tuple[int, ...]] = []
        refused: dict[str, RefusedRecords] = {}
        others: dict[str, RefusedRecords] = {}
        for row, message in enumerate(messages):
            try:
                record = _Record(message, self._reading)
                identity, window = self._of(record)
            except NotConcernedError as error:
                _refuse(others, str(error), row, message, error.kind)
                continue
            except (UndecodableError, NoFieldError) as error:
                _refuse(refused, str(error), row, message)
                continue
            rows.append(row)
            identities.append(identity)
            if self._has_times:
                times.append(window)
            if self._by is not None:
                by.append(_text_or_none(self._by, record))
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

    def _of(self, record: "_Record") -> tuple[bytes, tuple[int, ...]]:
        """The identity of a record and its times. Raises NotConcernedError, UndecodableError,
        NoFieldError."""
        if self._checks_type:
            _ = record.value
        try:
            for check in self._where:
                check(record)
            times = self._times_us(record) if self._has_times else ()
            return self._text(record), times
        except NoFieldError:
            for path in self._envelopes:
                if is_delete(record.value, path):
                    raise NotConcernedError("delete", "it is a delete") from None
            raise

    def _text(self, record: "_Record") -> bytes:
        if self._find_only is not None:
            text = text_of(self._find_only(record))
            if text is not None:
                return text
        parts = []
        for find in self._identity:
            text = text_of(find(record))
            if text is None:
                raise NoFieldError("a part of its identity is null, a list or a record")
            parts.append(text)
        return SEPARATOR.join(parts)

    def _times_us(self, record: "_Record") -> tuple[int, ...]:
        if self._key_window:
            start_ms, end_ms = record.window_ms()
            times: tuple[int, ...] = (_near(start_ms * 1_000), _near(end_ms * 1_000))
        else:
            times = tuple(microseconds(find(record), self._time_format) for find in self._times)
            if self._window_us:
                before, after = (self._window_us, 0) if self._window_ends else (0, self._window_us)
                times = (times[0] - before, times[0] + after)
        if times[0] >= times[-1] and len(times) > 1:
            raise UndecodableError("its window ends before it begins")
        return times


class _Decoding:
    """How records of a topic are decoded. decode, decode_key: None if they are not."""

    def __init__(
        self, topic: WatchedTopic, decode: Decode | None, decode_key: Decode | None
    ) -> None:
        self.decode, self.decode_key = decode, decode_key
        self.framing = framing_of(topic.format) if decode is not None else None
        self.key_framing = framing_of(topic.key) if decode_key is not None else None
        self.number = NUMBERS.get(topic.key)
        self.kind = topic.key
        self.window = topic.key_window
        self.window_ms = topic.window_ms


class _Record:
    """A message whose parts are decoded when they are needed, once. headers: None if they cannot be
    read."""

    __slots__ = ("_headers", "_key", "_reading", "_value", "message")

    def __init__(self, message: Message, reading: _Decoding) -> None:
        self.message = message
        self._reading = reading
        self._headers: Any = _UNREAD
        self._value: Any = _UNREAD
        self._key: Any = _UNREAD

    @property
    def headers(self) -> Headers:
        """Read once: after a name that is not UTF-8, the client's second answer contains a null
        pointer."""
        if self._headers is _UNREAD:
            self._headers = headers_of(self.message)
        result: Headers = self._headers
        return result

    @property
    def value(self) -> Any:
        """The decoded value. Raises NotConcernedError, UndecodableError."""
        if self._value is _UNREAD:
            value, decode = self.message.value(), self._reading.decode
            if value is None:
                raise NotConcernedError("tombstone", "it has no value")
            if self._reading.framing is not None:
                value = self._reading.framing.with_header(value, "value", self.headers)
            self._value = decode(value) if decode is not None else None
        return self._value

    @property
    def key(self) -> Any:
        """The key without its window; decoded, if it has a format. Raises NoFieldError,
        UndecodableError."""
        if self._key is _UNREAD:
            self._key = self._decoded_key()
        return self._key

    def window_ms(self) -> tuple[int, int]:
        """Start and end of the window that the key ends with. Raises as `key`."""
        return self.split_key()[1]

    def _decoded_key(self) -> Any:
        reading = self._reading
        key = self.split_key()[0]
        if reading.number is not None:
            if len(key) != reading.number.size:
                raise UndecodableError(f"its key of {len(key)} bytes is not of type {reading.kind}")
            return reading.number.unpack(key)[0]
        if reading.decode_key is None:
            return key
        if reading.key_framing is not None:
            key = reading.key_framing.with_header(key, "key", self.headers)
        return reading.decode_key(key)

    def split_key(self) -> tuple[bytes, tuple[int, int]]:
        """The key and the window after it. Raises NoFieldError, UndecodableError."""
        key, reading = self.message.key(), self._reading
        if key is None:
            raise NoFieldError("it has no key")
        if not reading.window:
            return key, (0, 0)
        tail = KEY_WINDOWS[reading.window]
        if len(key) < tail.size:
            raise UndecodableError(f"its key of {len(key)} bytes does not end with a window")
        first, *more = tail.unpack_from(key, len(key) - tail.size)
        is_session = reading.window == "session"
        window = (more[0], first + 1) if is_session else (first, first + reading.window_ms)
        return key[: len(key) - tail.size], window


def _finder(path: str, topic: WatchedTopic) -> Find:
    """The function that finds the value of a path in a record."""
    if path == TIMESTAMP:
        return lambda record: Milliseconds(record.message.timestamp()[1])
    if path == "key":
        return _whole_key if topic.needs_keys else lambda record: record.key
    if path == "value":
        return lambda record: record.value
    where, *names = names_of(path)
    if where == HEADER:
        return lambda record: _header(record.headers, names[0])
    if where == "key":
        return lambda record: field_of(record.key, names)
    return lambda record: field_of(record.value, names)


def _whole_key(record: _Record) -> Any:
    """A decoded key that is a plain value; of others their bytes, without those of a window."""
    key = record.key
    return record.split_key()[0] if text_of(key) is None else key


def _condition(path: str, find: Find, wanted: Wanted) -> Callable[[_Record], None]:
    """The function that raises NotConcernedError for a record without a wanted value."""
    if isinstance(wanted, bool):
        texts = None
    else:
        texts = {text_of(each) for each in (wanted if isinstance(wanted, tuple) else (wanted,))}

    def check(record: _Record) -> None:
        try:
            value = find(record)
        except NoFieldError:
            value = None
        if texts is None:
            if (value is not None) != wanted:
                raise NotConcernedError("other_type", f"it has {'no' if wanted else 'a'} {path}")
            return
        text = text_of(value)
        if text not in texts or text is None:
            shown = "no text" if text is None else text[:MAX_SHOWN].decode("utf-8", "replace")
            raise NotConcernedError("other_type", f"its {path} is {shown}")

    return check


def _text_or_none(find: Find, record: _Record) -> bytes | None:
    try:
        return text_of(find(record))
    except (UndecodableError, NoFieldError, NotConcernedError):
        return None


def _envelopes(topic: WatchedTopic) -> list[list[str]]:
    """Where the values of a topic have the state after a change, in which identities are looked
    up: paths of Debezium's change events."""
    result = []
    for path in topic.paths:
        where, *names = names_of(path)
        if where == "value" and AFTER in names[:-1]:
            result.append(names[: names.index(AFTER)])
    return result


def is_delete(value: Any, path: list[str]) -> bool:
    """Whether a change event has no state after the change, because the row was deleted or the
    table truncated."""
    try:
        state, operation = (field_of(value, [*path, name]) for name in (AFTER, "op"))
    except NoFieldError:
        return False
    return state is None and operation in DELETES


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


def _refuse(
    refused: dict[str, RefusedRecords],
    reason: str,
    row: int,
    message: Message,
    kind: RefusedKind = "refused",
) -> None:
    is_type = kind in ("refused", "other_type")
    reason = reason if reason in refused or len(refused) < MAX_REASONS or not is_type else OTHERS
    if reason not in refused:
        refused[reason] = RefusedRecords(message.partition(), message.offset(), 0, kind=kind)
    refused[reason].count += 1
    refused[reason].rows.append(row)


def sizes(messages: list[Message]) -> Iterator[int]:
    """Size of each value in bytes."""
    return map(len, messages)
