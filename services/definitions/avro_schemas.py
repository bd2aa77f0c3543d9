"""Avro schemas of other people's records, only ever read with.

What plays no part in reading a record is not judged, since registries hold schemas that other
libraries accept: default values, symbols of enums that are no names, attributes of logical types.

Values of these logical types have a Python type of their own: decimal is a Decimal, a uuid of type
fixed its text, a timestamp of any unit an int with `event_time_us`. All others are raw values.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from io import BytesIO
from typing import Any, Final
from uuid import UUID

import fastavro
from fastavro import _read_py  # in Python, whose recursion has a limit
from fastavro.read import LOGICAL_READERS

from schemas.codec import checked_schema

MOST_SCALE: Final = 1_000  # of a decimal
MOST_BYTES: Final = 500  # of a decimal; a longer one is its bytes, as its digits would take hours
MOST_NESTED_BYTES: Final = 100_000  # of a record whose schema contains itself
_SYMBOL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UUID_BYTES: Final = 16
TEXTS: Final = ("string", "bytes")  # which may be JSON that a path leads into
_NAMED: Final = ("record", "error", "enum", "fixed")
_LISTED: Final = "listed-symbol"  # an enum whose symbols are in `texts`
_EXACT: Final = Context(prec=4 * MOST_BYTES)
_CONTAINS_ITSELF: Final = "contains-itself"


class Timestamp(int):
    """A timestamp in the unit of its logical type; `event_time_us`: microseconds since 1970."""

    @property
    def event_time_us(self) -> int:
        """In microseconds."""
        return int(self)


class Milliseconds(Timestamp):
    """A timestamp in milliseconds."""

    @property
    def event_time_us(self) -> int:
        """In microseconds."""
        return int(self) * 1_000


class Nanoseconds(Timestamp):
    """A timestamp in nanoseconds."""

    @property
    def event_time_us(self) -> int:
        """Truncated to microseconds."""
        return int(self) // 1_000


_TIMES: Final[Mapping[str, type[Timestamp]]] = {
    f"{local}timestamp-{unit}": kind
    for local in ("", "local-")
    for unit, kind in (("millis", Milliseconds), ("micros", Timestamp), ("nanos", Nanoseconds))
}


def _decimal(data: bytes, schema: Any, _reader: Any = None) -> Decimal | bytes:
    if len(data) > MOST_BYTES:
        return data
    number = int.from_bytes(data, "big", signed=True)
    return Decimal(number).scaleb(-schema["scale"], _EXACT)


def _uuid(data: bytes, _schema: Any, _reader: Any = None) -> str:
    return str(UUID(bytes=data))


def _listed(symbol: str, schema: Any, _reader: Any = None) -> str:
    return str(schema["texts"][int(symbol.removeprefix("S"))])


# By type and logical type. The names are not Avro's, which fastavro checks and applies by itself.
_READERS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("bytes-watched-decimal", "fixed-watched-decimal"), _decimal),
    "fixed-watched-uuid": _uuid,
    f"enum-watched-{_LISTED}": _listed,
    **{
        f"long-watched-{name}": lambda data, _schema, _reader=None, kind=kind: kind(data)
        for name, kind in _TIMES.items()
    },
}
LOGICAL_READERS.update(_READERS)
_read_py.LOGICAL_READERS.update(_READERS)


def parsed(schemas: list[Any]) -> Any:
    """The last of some Avro schemas, which may refer to earlier ones, for `read`. A union is a list
    of schemas that can be used each by itself. Raises ValueError."""
    named: dict[str, Any] = {}
    with checked_schema():
        for schema in schemas:
            result = fastavro.parse_schema(_for_reading(schema), named_schemas=named, _force=True)
            lengths = _Lengths(named)
            lengths.take_bytes(result)
    marks = {
        "__fastavro_parsed": True,
        "__named_schemas": named,
        _CONTAINS_ITSELF: lengths.contains_itself,
    }
    if isinstance(result, list):
        return [_whole(branch, marks) for branch in result]
    return _whole(result, marks)


def _whole(schema: Any, marks: dict[str, Any]) -> Any:
    """A parsed schema with those that it refers to, as fastavro marks it."""
    named = marks["__named_schemas"]
    result = named.get(schema, schema) if isinstance(schema, str) else schema
    return result | marks if isinstance(result, dict) else result


def read(stream: BytesIO, schema: Any) -> Any:
    """The datum of a schema of `parsed` that begins where the stream is. Raises ValueError and many
    other kinds of errors for corrupt data.

    Data of a few bytes may be nested deeply if a schema contains itself, which would end the
    process in fastavro's compiled reader.
    """
    if not (isinstance(schema, dict) and schema[_CONTAINS_ITSELF]):
        return fastavro.schemaless_reader(stream, schema, None)
    if len(stream.getbuffer()) > MOST_NESTED_BYTES:
        raise ValueError(f"its schema contains itself, and it has over {MOST_NESTED_BYTES} bytes")
    try:
        return _read_py.schemaless_reader(stream, schema, None)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _for_reading(schema: Any) -> Any:
    """A schema without what reading does not need, and with our logical types."""
    if isinstance(schema, list):
        return [_for_reading(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    result = {name: each for name, each in schema.items() if name not in ("default", "logicalType")}
    if kind in ("record", "error"):
        result["fields"] = [_field(field) for field in schema["fields"]]
        return result
    if kind == "enum":
        return _enum(result)
    for inner in ("type", "items", "values"):
        if inner in result and not (inner == "type" and kind in _NAMED):
            result[inner] = _for_reading(result[inner])
    return result | _logical(schema)


def _field(field: dict[str, Any]) -> dict[str, Any]:
    rest = {name: each for name, each in field.items() if name not in ("default", "logicalType")}
    # A logical type belongs to the type; some put it beside it, where Avro's readers ignore it.
    return rest | {"type": _for_reading(field["type"])}


def _enum(schema: dict[str, Any]) -> dict[str, Any]:
    texts = [str(symbol) for symbol in schema["symbols"]]
    if all(map(_SYMBOL.fullmatch, texts)) and len({*texts}) == len(texts):
        return schema
    listed = {"texts": texts, "logicalType": f"watched-{_LISTED}"}
    return schema | listed | {"symbols": [f"S{number}" for number in range(len(texts))]}


def _logical(schema: dict[str, Any]) -> dict[str, Any]:
    """The logical type of a schema under our name, if it is one of ours and fits its type."""
    name, kind = schema.get("logicalType"), schema.get("type")
    if name == "decimal" and kind in ("bytes", "fixed"):
        scale = schema.get("scale", 0)
        fits = type(scale) is int and 0 <= scale <= MOST_SCALE
        return {"logicalType": "watched-decimal", "scale": scale} if fits else {}
    if name == "uuid" and kind == "fixed" and schema.get("size") == _UUID_BYTES:
        return {"logicalType": "watched-uuid"}
    return {"logicalType": f"watched-{name}"} if name in _TIMES and kind == "long" else {}


def type_name(schema: Any) -> str:
    """The full name of a record, an enum or a fixed; of other types that of the type."""
    if isinstance(schema, str):
        return schema
    return str(schema.get("name") or schema["type"])


def fields_instead(schema: Any, names: Sequence[str]) -> list[str] | None:
    """The fields of the record in which a path has none of them; None if values can have the path.
    schema: as `parsed` returns it."""
    whole = schema if isinstance(schema, list) else [schema]
    named: dict[str, Any] = {}
    for branch in whole:
        named |= branch.get("__named_schemas", {}) if isinstance(branch, dict) else {}
    return _fields_instead(whole, names, named)


def _fields_instead(
    schema: Any, names: Sequence[str], named: Mapping[str, Any]
) -> list[str] | None:
    if not names:
        return None
    if isinstance(schema, list):
        results = [_fields_instead(branch, names, named) for branch in schema]
        return None if None in results else [name for known in results for name in known or ()]
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in ("record", "error"):
        fields = {field["name"]: field["type"] for field in schema["fields"]}
        if names[0] not in fields:
            return [*fields]
        return _fields_instead(fields[names[0]], names[1:], named)
    if kind == "map" or (kind == "array" and names[0].isdecimal()):
        return _fields_instead(schema["values" if kind == "map" else "items"], names[1:], named)
    return None if kind in TEXTS else []


class _Lengths:
    """Which values of parsed schemas take at least a byte, and whether a record contains itself."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.contains_itself = False
        self._named = named
        self._known: dict[str, bool | None] = {}  # by record; None while its fields are visited

    def take_bytes(self, schema: Any) -> bool:
        """Whether every value takes at least a byte. Raises ValueError for an array of items that
        take none: a few bytes could be one of any length."""
        if isinstance(schema, list):
            for each in schema:
                self.take_bytes(each)
            return True  # the number of the branch
        if isinstance(schema, str):
            if schema not in self._named:
                return schema != "null"
            schema = self._named[schema]
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record_takes_bytes(schema)
        if kind in ("array", "map"):
            takes = self.take_bytes(schema["items" if kind == "array" else "values"])
            if kind == "array" and not takes:
                raise ValueError("it has an array of items that take no bytes")
            return True
        if kind == "fixed":
            return bool(schema["size"])
        return kind == "enum" or self.take_bytes(kind)

    def _record_takes_bytes(self, record: Any) -> bool:
        name = record["name"]
        if name not in self._known:
            self._known[name] = None
            takes = [self.take_bytes(field["type"]) for field in record["fields"]]
            self._known[name] = any(takes)
        result = self._known[name]
        if result is None:  # it has no end, or takes the bytes that lead to it
            self.contains_itself = result = True
        return result
