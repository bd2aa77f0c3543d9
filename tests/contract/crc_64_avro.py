"""CRC-64-AVRO and the parsing canonical form, written from the Avro specification.

Independent of the library that the codec uses, so that both can be compared.
"""

import json
from typing import Any

EMPTY = 0xC15D213AA4D7A795
# Attributes kept by the canonical form, in its order.
KEPT = ("name", "type", "fields", "symbols", "items", "values", "size")


def _entry(byte: int) -> int:
    fingerprint = byte
    for _bit in range(8):
        fingerprint = (fingerprint >> 1) ^ (EMPTY if fingerprint & 1 else 0)
    return fingerprint


TABLE = tuple(_entry(byte) for byte in range(256))


def crc_64_avro(data: bytes) -> int:
    """The 64-bit Rabin fingerprint of the specification."""
    fingerprint = EMPTY
    for byte in data:
        fingerprint = (fingerprint >> 8) ^ TABLE[(fingerprint ^ byte) & 0xFF]
    return fingerprint


def canonical(schema: Any) -> str:
    """Parsing canonical form of a schema whose named types are used once."""
    return json.dumps(_reduced(schema, ""), separators=(",", ":"), ensure_ascii=False)


def _reduced(schema: Any, namespace: str) -> Any:
    if isinstance(schema, list):
        return [_reduced(branch, namespace) for branch in schema]
    if isinstance(schema, str):
        return schema
    inner = schema.get("namespace", namespace)
    reduced = {name: schema[name] for name in KEPT if name in schema}
    if "fields" in reduced:
        reduced["fields"] = [
            {"name": field["name"], "type": _reduced(field["type"], inner)}
            for field in schema["fields"]
        ]
    if "name" in reduced and "." not in reduced["name"] and inner:
        reduced["name"] = f"{inner}.{reduced['name']}"
    for name in ("items", "values"):
        if name in reduced:
            reduced[name] = _reduced(reduced[name], inner)
    if set(reduced) == {"type"}:
        return _reduced(reduced["type"], inner)
    return reduced
