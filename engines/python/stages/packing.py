"""Serialises the state of a key as JSON, for state and rows on topics that others may write.

JSON contains only values, while unpickling can run arbitrary code. Rows with the same columns share
one list of names, because an engine may write the whole state of a key with every record.
"""

import json
from collections.abc import Iterable
from typing import Any

from stages.records import Row


def packed(kept: Any) -> bytes:
    """Serialise a row, rows, rows by what counts once, or a mark."""
    if isinstance(kept, list):
        kept = {"rows": _table(kept)}
    elif isinstance(kept, dict):
        kept = {"identities": list(kept), "rows": _table(kept.values())}
    return json.dumps(kept, separators=(",", ":")).encode()


def unpacked(data: bytes) -> Any:
    """Deserialise. Raises ValueError for invalid JSON, TypeError or LookupError for an unknown
    structure."""
    found = json.loads(data)
    if isinstance(found, list):
        return Row(*found)
    if not isinstance(found, dict):
        return found
    columns, cells = found["rows"]
    rows = [
        Row(dict(zip(columns[number], values, strict=True)), *place)
        for number, values, *place in cells
    ]
    if "identities" not in found:
        return rows
    return dict(zip(map(_identity, found["identities"]), rows, strict=True))


def _table(rows: Iterable[Row]) -> tuple[list[tuple[str, ...]], list[list[Any]]]:
    """The distinct column sets, and for each row the index of its set, its values and its other
    fields."""
    numbers: dict[tuple[str, ...], int] = {}
    cells = []
    for fields, *place in rows:
        number = numbers.setdefault(tuple(fields), len(numbers))
        cells.append([number, list(fields.values()), *place])
    return list(numbers), cells


def _identity(at: Any) -> Any:
    return tuple(at) if isinstance(at, list) else at
