"""What is kept of a key as JSON, for state and rows that go through topics, which others may write.

JSON says values only; a pickle runs the code that it names.
"""

import json
from typing import Any

from stages.records import Row


def packed(kept: Any) -> bytes:
    """A row, rows, rows by what counts once, or a mark."""
    if isinstance(kept, list):
        kept = {"rows": kept}
    elif isinstance(kept, dict):
        kept = {"group": list(kept.items())}
    return json.dumps(kept).encode()


def unpacked(data: bytes) -> Any:
    """The same back. Raises ValueError where it is no JSON, TypeError or KeyError where it is
    another's."""
    found = json.loads(data)
    if isinstance(found, list):
        return Row(*found)
    if not isinstance(found, dict):
        return found
    if "rows" in found:
        return [Row(*row) for row in found["rows"]]
    return {_identity(at): Row(*row) for at, row in found["group"]}


def _identity(at: Any) -> Any:
    return tuple(at) if isinstance(at, list) else at
