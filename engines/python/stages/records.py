"""Decodes and encodes values of Kafka records: Avro single-object encoding or JSON."""

import io
import json
from typing import Any, NamedTuple

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

TEXT = (str,)
JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": TEXT,
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
        self._checks = [
            (name, JSON_TYPES[kind], BOUNDS.get(kind, 0), kind in ("float", "double"))
            for name, kind in self.types.items()
        ]
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
        fields = {}
        try:
            found = json.loads(value or b"")
            for name, types, bound, is_float in self._checks:
                given = found[name]
                if type(given) not in types or (bound and not -bound <= given < bound):
                    return None
                if types is TEXT and not given.isascii():
                    given.encode()  # raises an error for half of a surrogate pair
                fields[name] = float(given) if is_float else given
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None
        return fields

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
