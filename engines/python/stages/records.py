"""Decodes and encodes values of Kafka records: Avro single-object encoding or JSON."""

import io
import json
from typing import Any, NamedTuple

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "long": (int,),
    "float": (float, int),
    "double": (float, int),
    "boolean": (bool,),
}
BOUNDS = {"int": 2**31, "long": 2**63}  # fastavro reads longer ints


class Row(NamedTuple):
    """A record of an input (`source`), or a row derived from several (`source` empty).

    event_ms, appended_ms: event time and LogAppendTime, epoch milliseconds; of several records the
    newest append. due_ms: when a window of it was due, if by time alone; else 0.
    """

    fields: dict[str, Any]
    source: str
    event_ms: int
    appended_ms: int
    due_ms: float = 0


class Record:
    """A schema. Single-object encoding is C3 01, the fingerprint of the schema, and the datum."""

    def __init__(self, text: str) -> None:
        schema = json.loads(text)
        crc = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
        self.header = b"\xc3\x01" + bytes.fromhex(crc)
        for field in schema["fields"]:  # times stay integers
            if isinstance(field["type"], dict):
                field["type"] = field["type"]["type"]
        self.types = {field["name"]: plain(field["type"]) for field in schema["fields"]}
        self.columns = list(self.types)
        self._ints = [name for name, kind in self.types.items() if kind == "int"]
        self.schema = fastavro.parse_schema(schema)

    def decode(self, value: bytes | None) -> dict[str, Any] | None:
        """The fields of a value; None if it is not such a record."""
        if value is None or value[:10] != self.header:
            return None
        data = io.BytesIO(value)
        data.seek(10)
        try:
            fields = fastavro.schemaless_reader(data, self.schema)
        except Exception:
            return None
        for name in self._ints:
            if not fits("int", fields[name]):
                return None
        return None if data.read(1) else fields

    def decode_json(self, value: bytes | None) -> dict[str, Any] | None:
        """The same for a JSON value: every column has a value of its type."""
        try:
            found = json.loads(value or b"")
            return {name: value_of(kind, found[name]) for name, kind in self.types.items()}
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None

    def encode(self, fields: dict[str, Any]) -> bytes:
        """Header and datum; missing columns become null."""
        out = io.BytesIO()
        out.write(self.header)
        row = {name: fields.get(name) for name in self.columns}
        fastavro.schemaless_writer(out, self.schema, row)
        return out.getvalue()


def plain(kind: Any) -> str:
    """An Avro type without null and logical types."""
    if isinstance(kind, list):
        kind = next(one for one in kind if one != "null")
    return kind["type"] if isinstance(kind, dict) else kind


def fits(kind: str, value: int | None) -> bool:
    """Whether an integer, or null, fits into an Avro type."""
    return value is None or -BOUNDS[kind] <= value < BOUNDS[kind]


def value_of(kind: str, given: Any) -> Any:
    """A JSON value as one of an Avro type. Raises TypeError, ValueError or OverflowError."""
    if type(given) not in JSON_TYPES[kind]:
        raise TypeError(kind)
    if kind in BOUNDS and not fits(kind, given):
        raise OverflowError(kind)
    if kind == "string":
        given.encode()  # raises an error for half of a surrogate pair
    return float(given) if kind in ("float", "double") else given
