"""The second wire format of the input records: JSON, for pipelines whose parsing cost is measured.

A value is one JSON object in UTF-8 without any marker before it. Its members are the fields of the
record's newest schema by name, in its order, without blanks; times are integers in the schema's
unit. Which record it is follows from its topic (`traffic.flow`: traffic_flow).
"""

import json
from typing import Any

from schemas import codec

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "long": (int,),
    "double": (float, int),
}


def encode_json(name: str, record: dict[str, Any]) -> bytes:
    """Encode one record of schema `name`."""
    ordered = {field["name"]: record[field["name"]] for field in _fields(name)}
    return json.dumps(ordered, separators=(",", ":"), ensure_ascii=False).encode()


def decode_json(name: str, data: bytes | None) -> dict[str, Any]:
    """Decode one record of schema `name`. Raises codec.DecodeError when it is not one."""
    try:
        record = json.loads(data or b"")
    except ValueError as error:
        raise codec.DecodeError(f"not JSON: {codec.said_by(error)}") from error
    if not isinstance(record, dict):
        raise codec.DecodeError("not a JSON object")
    for field in _fields(name):
        if type(record.get(field["name"])) not in _TYPES[_plain(field["type"])]:
            raise codec.DecodeError(f"{field['name']} is missing or of another type")
    return record


def _fields(name: str) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(codec.schema_json(name))["fields"]
    return fields


def _plain(kind: Any) -> str:
    return str(kind["type"]) if isinstance(kind, dict) else str(kind)
