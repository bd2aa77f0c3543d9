"""Avro schemas of other people's records."""

from collections.abc import Mapping
from typing import Any

import fastavro

from schemas.codec import checked_schema, without_logical_types


def parsed(schemas: list[Any]) -> Any:
    """The last of some Avro schemas, which may refer to earlier ones, without logical types:
    identities use raw values. Raises ValueError."""
    named: dict[str, Any] = {}
    with checked_schema():
        for one in schemas:
            found = fastavro.parse_schema(
                without_logical_types(one), named_schemas=named, _force=True
            )
            _takes_bytes(found, named, {})
    return found


def _takes_bytes(schema: Any, named: Mapping[str, Any], known: dict[str, bool | None]) -> bool:
    """Whether every value of a parsed schema takes at least a byte. known: the same by record, None
    while its fields are visited.

    Raises ValueError if a few bytes could be a record of any depth or length: for a record that
    contains itself, and for an array of items that take no bytes.
    """
    if isinstance(schema, list):
        for one in schema:
            _takes_bytes(one, named, known)
        return True  # the number of the branch
    if isinstance(schema, str):
        if schema not in named:
            return schema != "null"
        schema = named[schema]
    kind = schema["type"]
    if kind in ("record", "error"):
        return _record_takes_bytes(schema, named, known)
    if kind in ("array", "map"):
        takes = _takes_bytes(schema["items" if kind == "array" else "values"], named, known)
        if kind == "array" and not takes:
            raise ValueError("it has an array of items that take no bytes")
        return True
    if kind == "fixed":
        return bool(schema["size"])
    return kind == "enum" or _takes_bytes(kind, named, known)


def _record_takes_bytes(
    record: Any, named: Mapping[str, Any], known: dict[str, bool | None]
) -> bool:
    name = record["name"]
    if name not in known:
        known[name] = None
        takes = [_takes_bytes(field["type"], named, known) for field in record["fields"]]
        known[name] = any(takes)
    found = known[name]
    if found is None:
        raise ValueError(f"{name} contains itself")
    return found
