"""The codec of the records in `schemas/avro/`: Avro single-object encoding.

On the wire a record is `C3 01`, the 8-byte little-endian CRC-64-AVRO fingerprint of its schema, and
the datum (Avro specification, "Single-object encoding"), so a reader finds the writer's schema
without a registry server.

    >>> data = encode("results_conclusions", {...})
    >>> decode(data)
    ('results_conclusions', {...})

`fastavro` serves single records. Code that moves columns in batches (generator, evaluator) uses
`header()` and `schema_json()` with a batch encoder; the bytes are the same.

Times stay integers here, in the unit given by the schema's `logicalType` and doc; display code
converts them to datetimes. JSON fields (JSON_FIELDS) are validated here, and so is the range of
Avro's int, which fastavro does not check.

JSON is the second wire format of the input records, for pipelines whose parsing cost is measured. A
value is one JSON object in UTF-8 without a marker before it. Its members are the fields of the
record's newest schema by name, in schema order, without blanks; times are integers in the schema's
unit. The topic determines the record.
"""

import io
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import fastavro
from fastavro.schema import (
    SchemaParseException,
    UnknownType,
    fingerprint,
    to_parsing_canonical_form,
)

MARKER = b"\xc3\x01"
HEADER_BYTES = 10
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
SCHEMA_DIR = Path(__file__).parent / "avro"
# Fields that contain a JSON object, by record.
JSON_FIELDS = {
    "results_conclusions": "detail",
    "results_lifecycle": "detail",
    "results_pipeline": "detail",
}


MAX_SAID = 200
_MEANINGS: Final[dict[type[BaseException], str]] = {
    RecursionError: "it is nested too deeply",
    EOFError: "it ends too early",
    TimeoutError: "it took too long",
    UnknownType: "there is no type",
    KeyError: "it lacks",
}
_WITH_TEXT: Final = (UnknownType, KeyError)
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "long": (int,),
    "double": (float, int),
    "boolean": (bool,),
}
# JSON integers are unbounded; Avro's lie in [-N, N).
_BOUNDS = {"int": 2**31, "long": 2**63}


class DecodeError(ValueError):
    """A value is not a record of a known schema; the text is the reason for the dead letter."""


def said_by(error: BaseException) -> str:
    """Type and text of another library's error: one short line, deterministic for a value."""
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text}"[:MAX_SAID] if text else type(error).__name__


def told_by(error: BaseException) -> str:
    """The same for people: in place of the type, what it means."""
    reason = getattr(error, "reason", None)
    if isinstance(reason, Exception):
        return told_by(reason)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = said_by(error).removeprefix(type(error).__name__).removeprefix(": ")
    for kind, meaning in _MEANINGS.items():
        if isinstance(error, kind):
            return f"{meaning} {text}" if kind in _WITH_TEXT else meaning
    return text or "it has another form"


@dataclass(frozen=True)
class Schema:
    """One released record schema.

    name: for example `results_latency`; version: from 1; header: the 10 bytes before each datum;
    text: the `.avsc` as JSON text; parsed: fastavro's form, times as plain integers; ints,
    int_arrays: fields of Avro's int, and arrays of it.
    """

    name: str
    version: int
    header: bytes
    text: str
    parsed: Any
    ints: tuple[str, ...]
    int_arrays: tuple[str, ...]


def without_logical_types(schema: Any) -> Any:
    """A schema without logical types, so that values are raw."""
    if isinstance(schema, dict):
        return {k: without_logical_types(v) for k, v in schema.items() if k != "logicalType"}
    if isinstance(schema, list):
        return [without_logical_types(item) for item in schema]
    return schema


@contextmanager
def checked_schema() -> Iterator[None]:
    """Raise a ValueError in place of what fastavro raises for a text that is no Avro schema."""
    try:
        yield
    except (
        SchemaParseException,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
    ) as error:
        raise ValueError(f"not an Avro schema: {told_by(error)}") from error


def schema_of(text: str, version: int = 1) -> Schema:
    """The schema in an `.avsc` text. Raises fastavro's errors and KeyError."""
    raw = json.loads(text)
    crc = bytes.fromhex(fingerprint(to_parsing_canonical_form(raw), "CRC-64-AVRO"))
    parsed = fastavro.parse_schema(without_logical_types(raw), _force=True)
    types = {field["name"]: field["type"] for field in raw["fields"]}
    return Schema(
        raw["name"],
        version,
        MARKER + crc,
        json.dumps(raw),
        parsed,
        ints=tuple(each for each, kind in types.items() if "int" in (kind, *_branches(kind))),
        int_arrays=tuple(each for each, kind in types.items() if _items(kind) == "int"),
    )


def load_schema(path: Path) -> Schema:
    """The schema of a file `NAME.vVERSION.avsc`."""
    version = path.name.split(".")[1]
    return schema_of(path.read_text(), int(version.removeprefix("v")))


def _branches(kind: Any) -> list[Any]:
    return kind if isinstance(kind, list) else []


def _items(kind: Any) -> Any:
    return kind.get("items") if isinstance(kind, dict) else None


class RecordSchemas:
    """A set of record schemas, of the bus or of a domain, each in all released versions."""

    def __init__(self, schemas: Iterable[Schema]) -> None:
        self._by_header = {item.header: item for item in schemas}
        self._by_name: dict[str, list[Schema]] = {}
        for item in sorted(self._by_header.values(), key=lambda each: each.version):
            self._by_name.setdefault(item.name, []).append(item)

    def versions(self, name: str) -> tuple[Schema, ...]:
        """All released versions of a record, oldest first. Raises KeyError for an unknown name."""
        if name not in self._by_name:
            raise KeyError(f"no schema named {name!r}")
        return tuple(self._by_name[name])

    def schema(self, name: str) -> Schema:
        """The newest version of a record, which is used for writing. Raises KeyError."""
        return self.versions(name)[-1]

    def header(self, name: str) -> bytes:
        """The 10 bytes that precede every datum of the newest version of a record."""
        return self.schema(name).header

    def schema_json(self, name: str) -> str:
        """The newest version of a record as `.avsc` JSON text, logical types included."""
        return self.schema(name).text

    def encode(self, name: str, record: dict[str, Any]) -> bytes:
        """Encode one record. Raises ValueError or TypeError if it does not fit the schema."""
        newest = self.schema(name)
        _check_ints(newest, record)
        out = io.BytesIO()
        out.write(newest.header)
        fastavro.schemaless_writer(out, newest.parsed, record, strict_allow_default=True)
        return out.getvalue()

    def identify(self, data: bytes | None) -> Schema:
        """The writer's schema of an encoded record. Raises DecodeError if it is unknown."""
        if data is None or len(data) < HEADER_BYTES or data[:2] != MARKER:
            raise DecodeError("not in Avro single-object encoding (marker C3 01 missing)")
        result = self._by_header.get(bytes(data[:HEADER_BYTES]))
        if result is None:
            raise DecodeError(f"unknown schema fingerprint {data[2:HEADER_BYTES].hex()}")
        return result

    def decode_as(self, name: str, data: bytes | None) -> dict[str, Any]:
        """Fields of one record, which must have this name. Raises DecodeError, also for another
        record."""
        result, record = self.decode(data)
        if result != name:
            raise DecodeError(f"a {result} is not a {name}")
        return record

    def decode(self, data: bytes | None) -> tuple[str, dict[str, Any]]:
        """Decode one record of any released version.

        Returns its name and fields, resolved to the newest version. Raises DecodeError.
        """
        writer = self.identify(data)
        assert data is not None
        stream = io.BytesIO(data[HEADER_BYTES:])
        newest = self.schema(writer.name)
        reader = None if newest is writer else newest.parsed
        try:
            record: dict[str, Any] = fastavro.schemaless_reader(  # type: ignore[assignment]
                stream, writer.parsed, reader
            )
        except Exception as error:  # fastavro raises many kinds for corrupt data
            raise DecodeError(
                f"{writer.name} v{writer.version} cannot be decoded: {said_by(error)}"
            ) from error
        if stream.read(1):
            raise DecodeError(f"{writer.name} v{writer.version} has trailing bytes")
        try:
            _check_ints(newest, record)
        except ValueError as error:
            raise DecodeError(f"{writer.name} v{writer.version}: {error}") from error
        field = JSON_FIELDS.get(writer.name)
        if field and not _is_json_object(record[field]):
            raise DecodeError(f"{writer.name} v{writer.version}: {field} is not a JSON object")
        return writer.name, record


@cache
def records_of(schemas: tuple[str, ...]) -> RecordSchemas:
    """The records of a domain, from the `.avsc` texts of its schemas, one version each."""
    return RecordSchemas(schema_of(text) for text in schemas)


def _check_ints(schema: Schema, record: dict[str, Any]) -> None:
    """Raise ValueError for an int beyond 32 bits, which fastavro reads and writes."""
    for name in schema.ints:
        value = record.get(name)
        if isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
            raise ValueError(f"{name} {value} does not fit into Avro's int")
    for name in schema.int_arrays:
        values = record.get(name)
        if values and not INT_MIN <= min(values) <= max(values) <= INT_MAX:
            raise ValueError(f"{name} has values that do not fit into Avro's int")


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


# Records of the bus. Those of a domain are defined in its folder.
BUS = RecordSchemas(load_schema(path) for path in sorted(SCHEMA_DIR.glob("*.v*.avsc")))
schema = BUS.schema
schema_json = BUS.schema_json
encode, decode, decode_as = BUS.encode, BUS.decode, BUS.decode_as


def encode_json(name: str, record: dict[str, Any], records: RecordSchemas) -> bytes:
    """Encode one record of schema `name`, one of `records`."""
    ordered = {field["name"]: record[field["name"]] for field in _fields(records.schema_json(name))}
    return json.dumps(ordered, separators=(",", ":"), ensure_ascii=False).encode()


def decode_json(name: str, data: bytes | None, records: RecordSchemas) -> dict[str, Any]:
    """Decode one record of schema `name`, one of `records`. Every field must have a valid Avro
    value.

    Raises codec.DecodeError otherwise.
    """
    try:
        record = json.loads(data or b"")
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {said_by(error)}") from error
    if not isinstance(record, dict):
        raise DecodeError("not a JSON object")
    for field in _fields(records.schema_json(name)):
        member = field["name"]
        record[member] = _value(member, _plain(field["type"]), record.get(member))
    return record


def _value(member: str, kind: str, given: Any) -> Any:
    if type(given) not in _TYPES[kind]:
        raise DecodeError(f"{member} is missing or has the wrong type")
    bound = _BOUNDS.get(kind)
    if bound and not -bound <= given < bound:
        raise DecodeError(f"{member} is an integer that does not fit into Avro's {kind}")
    try:
        if kind == "string":
            given.encode()  # an escape such as \ud800 is half of a surrogate pair
        return float(given) if kind == "double" else given
    except (UnicodeEncodeError, OverflowError) as error:
        raise DecodeError(f"{member} is an invalid {kind}: {said_by(error)}") from error


@cache
def _fields(schema: str) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(schema)["fields"]
    return fields


def _plain(kind: Any) -> str:
    return str(kind["type"]) if isinstance(kind, dict) else str(kind)
