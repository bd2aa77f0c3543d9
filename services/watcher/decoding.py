"""Decodes values of watched topics in all formats, and resolves field paths.

`decoder(topic, registry)` returns a function from the bytes of a value to the record as Python
types. It raises UndecodableError with the reason. Text within a record that a path leads into is
read as JSON.
"""

import base64
import csv
import io
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import partial
from math import nan
from typing import Any, Final, Literal

from fastavro.schema import fingerprint, to_parsing_canonical_form

from schemas.codec import HEADER_BYTES, MARKER, told_by
from schemas.watch import AVRO, PROTOBUF, Encoding, Registry
from services.definitions.avro_schemas import Nanoseconds, parsed, read, type_name
from services.watcher.records import text_of
from services.watcher.schema_ids import (
    FRAMINGS,
    Framing,
    SchemaIds,
    UndecodableError,
    asking,
    framing_of,
)

MOST_INDEXES: Final = 100  # messages inside messages
Decode = Callable[[bytes], Any]
NotConcerned = Literal["other_type", "tombstone", "delete"]


def _exact(text: str) -> Decimal | float:
    """A number of JSON with a fraction or an exponent; not a number if its exponent is absurd."""
    try:
        return Decimal(text)
    except ArithmeticError:
        return nan


_plain_json: Final = json.JSONDecoder(parse_float=_exact).decode


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
    kind, framing = encoding.format, framing_of(encoding.format)
    if kind in PROTOBUF:
        return _protobuf(encoding)
    if kind in AVRO:
        return _avro(encoding, framing, registry)
    if framing is not None:
        return framed_json(framing)
    if kind == "csv":
        return partial(decode_csv, separator=encoding.separator or ",")
    return decode_json if kind == "json" else bytes


def _avro(encoding: Encoding, framing: Framing | None, registry: Registry | None) -> Decode:
    if framing is not None:
        ids = SchemaIds(encoding.schema_ids, asking(registry) if registry else None)
        return framed_avro(ids, framing, message=encoding.message)
    if encoding.format == "avro-single-object":
        return _single_object(encoding)
    schema = parsed([json.loads(encoding.schemas[0])])
    return lambda value: datum(schema, value, 0, encoding.message)


def field_of(record: Any, path: list[str]) -> Any:
    """The value at a path of field names; numbers index lists. Raises NoFieldError."""
    value = record
    for name in path:
        if isinstance(value, str | bytes):
            value = within(value)
        try:
            value = value[int(name)] if isinstance(value, list) else value[name]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise NoFieldError(f"it has no field {'.'.join(path)}") from error
    return value.plain() if isinstance(value, _Message) else value


def within(text: str | bytes) -> Any:
    """The record that a text of a record is, as JSON; None if it is none."""
    with suppress(ValueError, RecursionError):
        return _plain_json(text.decode() if isinstance(text, bytes) else text)
    return None


def decode_csv(value: bytes, separator: str = ",") -> list[str]:
    """The fields of a line of separated values, in quotation marks where they contain one."""
    try:
        (fields,) = csv.reader([value.decode("utf-8-sig")], delimiter=separator, strict=True)
    except (ValueError, csv.Error) as error:
        raise UndecodableError("it is not one line of separated values") from error
    return fields


def decode_json(value: bytes) -> Any:
    """Parse JSON in UTF-8, or in another encoding detected from its first bytes."""
    with suppress(ValueError, RecursionError):
        return _plain_json(value.decode())
    try:
        return json.loads(value, parse_float=_exact)
    except (ValueError, RecursionError) as error:
        raise UndecodableError(f"not JSON: {told_by(error)}") from error


def framed_json(framing: Framing = FRAMINGS["confluent"]) -> Decode:
    """Decoder for JSON after a header. The schema is not needed."""

    def decode(value: bytes) -> Any:
        _, data, start = framing.split(value)
        return decode_json(data[start:])

    return decode


def framed_avro(
    ids: SchemaIds,
    framing: Framing = FRAMINGS["confluent"],
    parse: Callable[[list[Any]], Any] = parsed,
    message: str = "",
) -> Decode:
    """Decoder for Avro after a header. It also raises RegistrySilentError. parse: makes a schema
    from a schema as JSON, after those that it refers to; raises ValueError. message: as in
    `datum`."""
    schemas: dict[bytes, Any] = {}  # parsed once, or why that is impossible

    def decode(value: bytes) -> Any:
        frame, data, start = framing.split(value)
        schema = schemas.get(frame)
        if schema is None:
            try:
                result = ids.schema(framing.id_of(frame))
            except ValueError as error:
                raise UndecodableError(str(error)) from error
            try:
                schema = parse(result)
            except ValueError as error:
                schema = UndecodableError(str(error))
            schemas[frame] = schema
        if isinstance(schema, UndecodableError):
            raise UndecodableError(*schema.args)
        return datum(schema, data, start, message)

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
    _, _, start = FRAMINGS["confluent"].split(value)
    count, place = _varint(value, start)
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
