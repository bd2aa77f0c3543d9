"""What is kept of a key as JSON, for state and rows that go through topics, which others may write.

JSON says values only; a pickle runs the code that it names. Rows of the same columns name them
once, because an engine may write all that it keeps of a key at every record.
"""

import json
from collections.abc import Iterable
from typing import Any

from stages.records import Row


def packed(kept: Any) -> bytes:
    """A row, rows, rows by what counts once, or a mark."""
    if isinstance(kept, list):
        kept = {"rows": _table(kept)}
    elif isinstance(kept, dict):
        kept = {"identities": list(kept), "rows": _table(kept.values())}
    return json.dumps(kept, separators=(",", ":")).encode()


def unpacked(data: bytes) -> Any:
    """The same back. Raises ValueError where it is no JSON, TypeError or LookupError where it is
    another's."""
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
    """Every set of columns that rows have, and of each row the number of its own, its values and
    the rest of it."""
    numbers: dict[tuple[str, ...], int] = {}
    cells = []
    for fields, *place in rows:
        number = numbers.setdefault(tuple(fields), len(numbers))
        cells.append([number, list(fields.values()), *place])
    return list(numbers), cells


def _identity(at: Any) -> Any:
    return tuple(at) if isinstance(at, list) else at
