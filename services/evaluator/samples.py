"""Samples of offenders for people to look at: names instead of the codes that the evaluator works
with, so that a sample follows from the records alone.

{"verdict": "wrong", "gem_pack_id": "g7", "window_start": 1800000000000,
 "expected": {"window_end": 1800000008000, "revenue": 12.5}, "actual": {…}}
"""

from typing import Any

import numpy as np

from services.evaluator.columns import Ints, by_value
from services.evaluator.outputs import Outputs
from services.evaluator.stages import Stage

MAX_KEY_CHARACTERS = 200


def missing(stage: Stage, group: int, index: int) -> dict[str, Any]:
    """An expected output that did not come."""
    address = stage.address(group, index)
    return {"verdict": "missing", **address, "expected": stage.wanted(group, index)}


def unexpected(stage: Stage, rows: Outputs, row: int) -> dict[str, Any]:
    """An output that nothing explains."""
    return {"verdict": "unexpected", **stage.address_of(rows, row), "actual": stage.said(rows, row)}


def wrong(stage: Stage, rows: Outputs, row: int) -> dict[str, Any]:
    """An output that says something else than its inputs imply, or has another key."""
    group, index = int(rows.group[row]), int(rows.index[row])
    address = stage.address(group, index)
    expected, actual = stage.wanted(group, index), stage.said(rows, row)
    if rows.keys is not None and not rows.keys.is_right[row]:
        expected["key"] = str(address[stage.key_column(group, index)])
        actual["key"] = _key_text(rows.keys.values[row])
    return {"verdict": "wrong", **address, "expected": expected, "actual": actual}


def first_of_each_second(time_ms: Ints, most: int) -> list[int]:
    """The first `most` rows of every second."""
    every = np.arange(len(time_ms))
    return [row for _, rows in by_value(time_ms // 1000) for row in every[rows][:most].tolist()]


def _key_text(key: bytes | None) -> str | None:
    text = None if key is None else key.decode("utf-8", "backslashreplace")
    return text if text is None else text[:MAX_KEY_CHARACTERS]
