"""Serialises the state of a key as JSON, for state and rows on topics that others may write.

JSON contains only values, while unpickling can run arbitrary code. Rows with the same columns share
one list of names, because an engine may write the whole state of a key with every record.
"""

import json
from collections.abc import Iterable
from typing import Any

from stages.kinds import CountedRows
from stages.records import Row


def _distinct(values: set[Any]) -> dict[str, list[Any]]:
    return {"distinct": list(values)}


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_distinct)


def packed(kept: Any) -> bytes:
    """Serialise a row, rows, rows by input, a counted window, or a mark."""
    if isinstance(kept, CountedRows):
        identities, *others = vars(kept).values()
        kept = {"counted": [list(identities), *others]}
    elif isinstance(kept, list):
        kept = {"rows": _table(kept)}
    elif isinstance(kept, dict):
        kept = {"inputs": list(kept), "rows": _table(kept.values())}
    return _ENCODER.encode(kept).encode()


def unpacked(data: bytes) -> Any:
    """Deserialise. Raises ValueError for invalid JSON, TypeError or LookupError for an unknown
    structure."""
    found = json.loads(data)
    if isinstance(found, list):
        return Row(*found)
    if not isinstance(found, dict):
        return found
    if "counted" in found:
        identities, *rest, values = found["counted"]
        values = [set(kept["distinct"]) if isinstance(kept, dict) else kept for kept in values]
        return CountedRows(dict.fromkeys(identities), *rest, values)
    columns, cells = found["rows"]
    rows = [
        Row(dict(zip(columns[number], values, strict=True)), *place)
        for number, values, *place in cells
    ]
    return dict(zip(found["inputs"], rows, strict=True)) if "inputs" in found else rows


def _table(rows: Iterable[Row]) -> tuple[list[tuple[str, ...]], list[list[Any]]]:
    """The distinct column sets, and for each row the index of its set, its values and its other
    fields."""
    numbers: dict[tuple[str, ...], int] = {}
    cells = []
    for fields, *place in rows:
        number = numbers.setdefault(tuple(fields), len(numbers))
        cells.append([number, list(fields.values()), *place])
    return list(numbers), cells
