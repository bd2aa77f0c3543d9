"""Decodes and encodes values of Kafka records: Avro single-object encoding or JSON."""

import io
import json
from typing import Any, NamedTuple

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form


class Row(NamedTuple):
    """A record of an input (`source`), or a row derived from several (`source` empty).

    event_ms, appended_ms: event time and LogAppendTime, epoch milliseconds; of several records the
    newest append.
    """

    fields: dict[str, Any]
    source: str
    event_ms: int
    appended_ms: int


class Record:
    """A schema. Single-object encoding is C3 01, the fingerprint of the schema, and the datum."""

    def __init__(self, text: str) -> None:
        schema = json.loads(text)
        crc = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
        self.header = b"\xc3\x01" + bytes.fromhex(crc)
        for field in schema["fields"]:  # times stay integers
            if isinstance(field["type"], dict):
                field["type"] = field["type"]["type"]
        self.columns = [field["name"] for field in schema["fields"]]
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
        return None if data.read(1) else fields

    def decode_json(self, value: bytes | None) -> dict[str, Any] | None:
        """The same for a JSON value."""
        try:
            fields = json.loads(value or b"")
            return fields if all(fields[name] is not None for name in self.columns) else None
        except (ValueError, TypeError, KeyError):
            return None

    def encode(self, fields: dict[str, Any]) -> bytes:
        """Header and datum; missing columns become null."""
        out = io.BytesIO()
        out.write(self.header)
        row = {name: fields.get(name) for name in self.columns}
        fastavro.schemaless_writer(out, self.schema, row)
        return out.getvalue()
