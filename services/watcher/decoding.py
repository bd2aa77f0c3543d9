"""Decodes values of watched topics in all formats, and resolves field paths.

`decoder(topic, registry)` returns a function from the bytes of a value to the record as Python
types. It raises UndecodableError with the reason.

Confluent's header has the id of a schema, which is in a file or in a registry: 0 and a number, or 1
and a GUID. It may be in a header of the Kafka record instead of before the value, whence the caller
puts it there. Schemas are immutable, so each is fetched once. A missing one is fetched again after
a while, as it may have been registered since. Records may contain any id, so the number of unknown
ids fetched in that time is limited. Only some statuses (NO_SCHEMA) say that a schema does not
exist. A registry that does not answer, or answers with another status, is an error of its own: it
says nothing about a record.
"""

import base64
import io
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from http.client import HTTPException
from math import nan
from typing import Any, Final, Literal
from uuid import UUID

from fastavro.schema import fingerprint, to_parsing_canonical_form

from schemas.codec import HEADER_BYTES, MARKER, told_by
from schemas.watch import PROTOBUF, Encoding, Registry
from services.definitions.avro_schemas import Nanoseconds, parsed, read, type_name
from services.runtime.clickhouse import NoRedirects, ServerRefusedError
from services.watcher.records import text_of

TIMEOUT_S: Final = 5.0
ASK_AGAIN_S: Final = 30.0
# Statuses about the id itself: malformed, not found (Confluent's error codes 40401 to 40403),
# unprocessable.
NO_SCHEMA: Final = (400, 404, 422)
MAX_BYTES: Final = 4 * 1024 * 1024
MAX_REFERENCES: Final = 200
MOST_UNKNOWN: Final = 10  # fetched per ASK_AGAIN_S
TOO_MANY: Final = f"its schema is unknown, like {MOST_UNKNOWN} others requested recently"
FRAME_BYTES: Final = 5  # Confluent's header: 0 and the schema id
GUID_FRAME_BYTES: Final = 17  # the same with a GUID: 1 and 16 bytes
MOST_INDEXES: Final = 100  # messages inside messages
NO_FRAME: Final = "it does not start with 0 and a schema id"
Decode = Callable[[bytes], Any]
NotConcerned = Literal["other_type", "tombstone", "delete"]
SchemaId = int | UUID


def _exact(text: str) -> Decimal | float:
    """A number of JSON with a fraction or an exponent; not a number if its exponent is absurd."""
    try:
        return Decimal(text)
    except ArithmeticError:
        return nan


_plain_json: Final = json.JSONDecoder(parse_float=_exact).decode


class SchemaMissingError(ValueError):
    """A schema is unavailable; the text gives the reason."""


class RegistrySilentError(RuntimeError):
    """The registry does not say at the moment whether it has a schema."""


class SchemaIds:
    """Avro schemas by id: a schema as JSON, after those that it refers to, in dependency order.

    known: `.avsc` texts by id. ask: fetches JSON at a path of the registry; None without one.
    """

    def __init__(
        self,
        known: Mapping[str, str],
        ask: Callable[[str], Any] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._found: dict[SchemaId, list[Any]] = {
            int(name) if name.isdecimal() else UUID(name): [json.loads(text)]
            for name, text in known.items()
        }
        self._missing: dict[SchemaId, tuple[float, str]] = {}  # retry time and reason
        self._others_s = 0.0  # retry time of ids that were not fetched
        self._ask = ask
        self._clock_s = clock_s

    def schema(self, number: SchemaId) -> list[Any]:
        """The schema with an id, last, after those that it refers to. Raises SchemaMissingError,
        RegistrySilentError."""
        if number in self._found:
            return self._found[number]
        if self._ask is None:
            raise SchemaMissingError(f"no file contains schema {number}")
        missing = self._missing.get(number, (0.0, ""))
        for again_s, reason in (missing, (self._others_s, TOO_MANY)):
            if self._clock_s() < again_s:
                raise SchemaMissingError(reason)
        try:
            result = self._asked(number)
        except SchemaMissingError as error:
            self._note(number, error)
            raise
        self._found[number] = result
        return result

    def _note(self, number: SchemaId, error: SchemaMissingError) -> None:
        """Delay further fetches of an id, and of other ids if required."""
        now_s = self._clock_s()
        recent = {each: entry for each, entry in self._missing.items() if entry[0] > now_s}
        self._missing = recent | {number: (now_s + ASK_AGAIN_S, str(error))}
        if len(self._missing) >= MOST_UNKNOWN:
            self._others_s = min(again_s for again_s, _ in self._missing.values())

    def _asked(self, number: SchemaId) -> list[Any]:
        assert self._ask is not None
        try:
            kind = "ids" if isinstance(number, int) else "guids"
            answer = self._ask(f"/schemas/{kind}/{number}")
            if answer.get("schemaType", "AVRO") != "AVRO":
                raise SchemaMissingError(f"schema {number} has the type {answer['schemaType']}")
            before = self._referred(answer.get("references", ()), set())
            return [*before, json.loads(answer["schema"])]
        except (
            OSError,
            HTTPException,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            if isinstance(error, SchemaMissingError):
                raise
            if silence := _silence(error):
                raise RegistrySilentError(silence) from error
            raise SchemaMissingError(f"schema {number} was not found: {_said(error)}") from error

    def _referred(self, references: Any, seen: set[tuple[str, int]]) -> list[Any]:
        result: list[Any] = []
        for reference in references:
            place = (str(reference["subject"]), int(reference["version"]))
            if place in seen:
                continue
            seen.add(place)
            if len(seen) > MAX_REFERENCES or self._ask is None:
                raise SchemaMissingError(f"it refers to more than {MAX_REFERENCES} schemas")
            subject = urllib.parse.quote(place[0], safe="")
            answer = self._version(f"/subjects/{subject}/versions/{place[1]}")
            result += self._referred(answer.get("references", ()), seen)
            result.append(json.loads(answer["schema"]))
        return result

    def _version(self, path: str) -> Any:
        """A version of a subject, which may have been deleted softly since."""
        assert self._ask is not None
        try:
            return self._ask(path)
        except urllib.error.HTTPError as error:
            if error.code not in NO_SCHEMA:
                raise
        return self._ask(f"{path}?deleted=true")


def _said(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the registry answers with status {error.code}"
    if isinstance(error, AttributeError | KeyError | TypeError):
        return "its answer is not that of a schema registry"
    return "its answer is cut off" if isinstance(error, HTTPException) else told_by(error)


def _silence(error: Exception) -> str:
    """Why the registry does not say whether it has a schema; empty if the error says that."""
    if isinstance(error, urllib.error.HTTPError):
        if error.code in NO_SCHEMA:
            return ""
        return _said(error)
    if isinstance(error, ServerRefusedError):
        return f"the registry refuses: {error}"
    return f"the registry does not answer: {told_by(error)}" if isinstance(error, OSError) else ""


def asking(registry: Registry) -> Callable[[str], Any]:
    """Returns a function that fetches JSON at a path of the registry. It raises OSError,
    HTTPException, ValueError, RecursionError. Raises OSError for an unusable ca_path."""
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    if registry.token:
        headers["Authorization"] = f"Bearer {registry.token}"
    elif registry.user:
        login = base64.b64encode(f"{registry.user}:{registry.password}".encode()).decode()
        headers["Authorization"] = f"Basic {login}"
    try:
        context = ssl.create_default_context(cafile=registry.ca_path or None)
    except OSError as error:  # it does not name the file
        text = f"registry.ca_path: {registry.ca_path} cannot be used: {told_by(error)}"
        raise OSError(text) from error
    opener = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=context), NoRedirects()
    )

    def ask(path: str) -> Any:
        request = urllib.request.Request(registry.url.rstrip("/") + path, headers=headers)
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read(MAX_BYTES))

    return ask


class UndecodableError(ValueError):
    """A value cannot be decoded; the text gives the reason."""


class NotConcernedError(ValueError):
    """A record does not concern the watch; the text says why.

    kind: other_type, if it is not of the watched type or fails a condition of `where`; tombstone,
    if it has no value; delete, if it says that a row was deleted.
    """

    def __init__(self, kind: NotConcerned, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class NoFieldError(ValueError):
    """A record does not have a field of a path."""


def decoder(encoding: Encoding, registry: Registry | None) -> Decode:
    """The decoder for the values or keys of a topic. Raises ValueError for unusable schemas."""
    kind = encoding.format
    if kind in PROTOBUF:
        return _protobuf(encoding)
    if kind == "avro-confluent":
        ids = SchemaIds(encoding.schema_ids, asking(registry) if registry else None)
        return confluent_avro(ids, message=encoding.message)
    if kind == "avro-single-object":
        return _single_object(encoding)
    if kind == "avro":
        schema = parsed([json.loads(encoding.schemas[0])])
        return lambda value: datum(schema, value, 0, encoding.message)
    return {"json": decode_json, "json-confluent": confluent_json}.get(kind, bytes)


def field_of(record: Any, path: list[str]) -> Any:
    """The value at a path of field names; numbers index lists. Raises NoFieldError."""
    value = record
    for name in path:
        try:
            value = value[int(name)] if isinstance(value, list) else value[name]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise NoFieldError(f"it has no field {'.'.join(path)}") from error
    return value.plain() if isinstance(value, _Message) else value


def decode_json(value: bytes) -> Any:
    """Parse JSON in UTF-8, or in another encoding detected from its first bytes."""
    with suppress(ValueError, RecursionError):
        return _plain_json(value.decode())
    try:
        return json.loads(value, parse_float=_exact)
    except (ValueError, RecursionError) as error:
        raise UndecodableError(f"not JSON: {told_by(error)}") from error


def confluent_json(value: bytes) -> Any:
    """Parse JSON after Confluent's header. The schema is not needed."""
    return decode_json(value[_frame_bytes(value) :])


def _frame_bytes(value: bytes) -> int:
    """The length of Confluent's header."""
    result = GUID_FRAME_BYTES if value[:1] == b"\1" else FRAME_BYTES
    if len(value) < result or value[0] > 1:
        raise UndecodableError(NO_FRAME)
    return result


def _schema_id(frame: bytes) -> SchemaId:
    if len(frame) == GUID_FRAME_BYTES:
        return UUID(bytes=frame[1:])
    return int.from_bytes(frame[1:], "big")


def confluent_avro(
    ids: SchemaIds, parse: Callable[[list[Any]], Any] = parsed, message: str = ""
) -> Decode:
    """Decoder for Avro with Confluent's header. It also raises RegistrySilentError. parse: makes a
    schema from a schema as JSON, after those that it refers to; raises ValueError. message: as in
    `datum`."""
    schemas: dict[bytes, Any] = {}  # parsed once, or why that is impossible

    def decode(value: bytes) -> Any:
        size = FRAME_BYTES if value[:1] == b"\0" else _frame_bytes(value)
        frame = value[:size]
        schema = schemas.get(frame)
        if schema is None:
            _frame_bytes(value)
            try:
                result = ids.schema(_schema_id(frame))
            except ValueError as error:
                raise UndecodableError(str(error)) from error
            try:
                schema = parse(result)
            except ValueError as error:
                schema = UndecodableError(str(error))
            schemas[frame] = schema
        if isinstance(schema, UndecodableError):
            raise UndecodableError(*schema.args)
        return datum(schema, value, size, message)

    return decode


def _single_object(encoding: Encoding) -> Decode:
    schemas: Mapping[bytes, Any] = {
        MARKER + bytes.fromhex(fingerprint(to_parsing_canonical_form(raw), "CRC-64-AVRO")): parsed(
            [raw]
        )
        for raw in map(json.loads, encoding.schemas)
    }

    def decode(value: bytes) -> Any:
        schema = schemas.get(value[:HEADER_BYTES])
        if schema is None:
            is_marked = value[:2] == MARKER and len(value) >= HEADER_BYTES
            what = f"fingerprint {value[2:HEADER_BYTES].hex()}" if is_marked else "beginning"
            raise UndecodableError(f"its {what} matches none of the given schemas")
        return datum(schema, value, HEADER_BYTES, encoding.message)

    return decode


def datum(schema: Any, value: bytes, start: int = 0, message: str = "") -> Any:
    """An Avro datum that starts at `start` and must end with the value. message: the full name of
    the only type that concerns the watch, if one does; of a union that of its branch."""
    stream = io.BytesIO(value)
    stream.seek(start)
    try:
        if isinstance(schema, list):
            schema = schema[_branch(stream)]
        if message and (name := type_name(schema)) != message:
            raise NotConcernedError("other_type", f"its type is {name}")
        record = read(stream, schema)
    except NotConcernedError:
        raise
    except Exception as error:  # fastavro raises many kinds for corrupt data
        raise UndecodableError(f"not a record of its schema: {told_by(error)}") from error
    if stream.tell() != len(value):
        raise UndecodableError("it has trailing bytes")
    return record


def _branch(stream: io.BytesIO) -> int:
    """The number of a union's branch. Raises IndexError if it is negative."""
    branch = int(read(stream, "long"))
    if branch < 0:
        raise IndexError(branch)
    return branch


def _protobuf(encoding: Encoding) -> Decode:
    from google.protobuf.message import DecodeError as ProtobufError

    message = message_of(encoding.schemas[0], encoding.message)

    def decode(value: bytes, start: int = 0) -> Any:
        try:
            return _Message(message.FromString(value[start:]))
        except ProtobufError as error:
            raise UndecodableError(f"not a {encoding.message}: {told_by(error)}") from error

    return decode if encoding.format == "protobuf" else _framed(message, decode)


def _framed(message: Any, decode: Callable[[bytes, int], Any]) -> Decode:
    """The decoder of values after Confluent's header: 0, the schema id, and the message indexes,
    which say which message of the schema the value is."""
    from services.definitions.descriptor_sets import type_at

    types: dict[tuple[int, ...], str] = {}

    def framed(value: bytes) -> Any:
        indexes, start = _message_indexes(value)
        if indexes not in types:
            try:
                types[indexes] = type_at(message, indexes)
            except IndexError as error:
                place = ".".join(map(str, indexes))
                raise UndecodableError(f"the schema file has no message {place}") from error
        if types[indexes] != message.DESCRIPTOR.full_name:
            raise NotConcernedError("other_type", f"its type is {types[indexes]}")
        return decode(value, start)

    return framed


def message_of(descriptors: str, name: str) -> Any:
    """The class of a message, from a descriptor set in Base64. Raises ValueError."""
    from services.definitions.descriptor_sets import message_class

    try:
        return message_class(base64.b64decode(descriptors), name)
    except ValueError as error:
        raise ValueError(f"the file of {name} {error}") from error


class _Message:
    """Gives access to the fields of a message by name, like a record."""

    __slots__ = ("_message",)

    def __init__(self, message: Any) -> None:
        self._message = message

    def __getitem__(self, name: str) -> Any:
        field = self._message.DESCRIPTOR.fields_by_name[name]
        value = getattr(self._message, name)
        whole = field.message_type
        if whole is not None and whole.GetOptions().map_entry:
            of = whole.fields_by_name["value"]
            return {_key_text(key): _single(of, each) for key, each in value.items()}
        if hasattr(value, "extend"):
            return [_single(field, each) for each in value]
        if whole is not None and field.has_presence and not self._message.HasField(name):
            return None
        return _single(field, value)

    def plain(self) -> Any:
        """The value of a wrapper such as google.protobuf.StringValue, and a Timestamp as number;
        other messages as they are."""
        name = self._message.DESCRIPTOR.full_name
        if name in _WRAPPERS:
            return self._message.value
        if name == "google.protobuf.Timestamp":
            return Nanoseconds(self._message.seconds * 1_000_000_000 + self._message.nanos)
        return self


def _single(field: Any, value: Any) -> Any:
    """A value of a field: an enum's is its first name, or the number if the file has none for it,
    as later versions of the enum may have."""
    if field.message_type is not None:
        return _Message(value)
    if field.enum_type is None:
        return value
    symbol = field.enum_type.values_by_number.get(value)
    return value if symbol is None else symbol.name


_WRAPPERS: Final = {
    f"google.protobuf.{kind}Value"
    for kind in ["Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"]
}


def _key_text(key: Any) -> str:
    """A map key as written in a path."""
    return (text_of(key) or b"").decode()


def _message_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """The message indexes after the schema id, and where the message begins. No index means the
    first message."""
    count, place = _varint(value, _frame_bytes(value))
    if not 0 <= count <= MOST_INDEXES:
        raise UndecodableError("the message indexes of its header cannot be read")
    indexes = []
    for _ in range(count):
        index, place = _varint(value, place)
        indexes.append(index)
    return tuple(indexes) or (0,), place


def _varint(value: bytes, place: int) -> tuple[int, int]:
    """A varint in zigzag encoding, and its end."""
    number = shift = 0
    while place < len(value) and shift < 64:
        byte = value[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place
        shift += 7
    raise UndecodableError("its framing is incomplete")
