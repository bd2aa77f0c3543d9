"""JSON as second wire format of the input records, for pipelines whose parsing cost is measured.

A value is one JSON object in UTF-8 without a marker before it. Its members are the fields of the
record's newest schema by name, in schema order, without blanks; times are integers in the schema's
unit. The topic determines the record.
"""

import json
from functools import cache
from typing import Any

from schemas import codec

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "long": (int,),
    "double": (float, int),
    "boolean": (bool,),
}
# JSON integers are unbounded; Avro's lie in [-N, N).
_BOUNDS = {"int": 2**31, "long": 2**63}


def encode_json(name: str, record: dict[str, Any], records: codec.Records) -> bytes:
    """Encode one record of schema `name`, one of `records`."""
    ordered = {field["name"]: record[field["name"]] for field in _fields(records.schema_json(name))}
    return json.dumps(ordered, separators=(",", ":"), ensure_ascii=False).encode()


def decode_json(name: str, data: bytes | None, records: codec.Records) -> dict[str, Any]:
    """Decode one record of schema `name`, one of `records`. Every field must have a valid Avro
    value.

    Raises codec.DecodeError otherwise.
    """
    try:
        record = json.loads(data or b"")
    except (ValueError, RecursionError) as error:
        raise codec.DecodeError(f"not JSON: {codec.said_by(error)}") from error
    if not isinstance(record, dict):
        raise codec.DecodeError("not a JSON object")
    for field in _fields(records.schema_json(name)):
        member = field["name"]
        record[member] = _value(member, _plain(field["type"]), record.get(member))
    return record


def _value(member: str, kind: str, given: Any) -> Any:
    if type(given) not in _TYPES[kind]:
        raise codec.DecodeError(f"{member} is missing or has the wrong type")
    bound = _BOUNDS.get(kind)
    if bound and not -bound <= given < bound:
        raise codec.DecodeError(f"{member} is an integer that does not fit into Avro's {kind}")
    try:
        if kind == "string":
            given.encode()  # an escape such as \ud800 is half of a surrogate pair
        return float(given) if kind == "double" else given
    except (UnicodeEncodeError, OverflowError) as error:
        raise codec.DecodeError(f"{member} is an invalid {kind}: {codec.said_by(error)}") from error


@cache
def _fields(schema: str) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(schema)["fields"]
    return fields


def _plain(kind: Any) -> str:
    return str(kind["type"]) if isinstance(kind, dict) else str(kind)
