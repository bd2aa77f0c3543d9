"""Samples of offenders for people to look at: names instead of the codes that the evaluator works
with, so that a sample follows from the records alone.

{"verdict": "wrong", "measurement_id": "a", "lane": "lane1", "observed_at": 1800000000000,
 "expected": {"num_lanes": 1, "flow": 300.0, "speed": 80.0}, "actual": {…}}
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from services.evaluator.columns import Ints, by_value
from services.evaluator.inputs import FLOW, SPEED, Inputs
from services.evaluator.outputs import Outputs
from services.evaluator.stages import Stage

MAX_KEY_CHARACTERS = 200
_KINDS = {FLOW: "flow", SPEED: "speed"}


def missing(stage: Stage, inputs: Inputs, group: int, index: int) -> dict[str, Any]:
    """An expected output that did not come."""
    address = stage.address(inputs, group, index)
    expected = _shown(stage.wanted(inputs, group, index), inputs)
    return {"verdict": "missing", **address, "expected": expected}


def unexpected(stage: Stage, inputs: Inputs, rows: Outputs, row: int) -> dict[str, Any]:
    """An output that nothing explains."""
    address = stage.address(inputs, int(rows.group[row]), int(rows.index[row]))
    return {"verdict": "unexpected", **address, "actual": _actual(inputs, rows, row)}


def wrong(stage: Stage, inputs: Inputs, rows: Outputs, row: int) -> dict[str, Any]:
    """An output that says something else than its inputs imply, or has another key."""
    group, index = int(rows.group[row]), int(rows.index[row])
    address = stage.address(inputs, group, index)
    expected = _shown(stage.wanted(inputs, group, index), inputs)
    actual = _actual(inputs, rows, row)
    if rows.keys is not None and not rows.keys.is_right[row]:
        expected["key"] = address["measurement_id"]
        actual["key"] = _key_text(rows.keys.values[row])
    return {"verdict": "wrong", **address, "expected": expected, "actual": actual}


def first_of_each_second(time_ms: Ints, most: int) -> list[int]:
    """The first `most` rows of every second."""
    every = np.arange(len(time_ms))
    return [row for _, rows in by_value(time_ms // 1000) for row in every[rows][:most].tolist()]


def _actual(inputs: Inputs, rows: Outputs, row: int) -> dict[str, Any]:
    content = {name: column[row].item() for name, column in rows.content.items()}
    if "digest" in content:
        return {"value": "other bytes"}
    return _shown(content, inputs)


def _shown(content: Mapping[str, Any], inputs: Inputs) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in content.items():
        if name == "channel":
            shown |= inputs.channel_names(value)
        elif name == "kind":
            shown[name] = _KINDS.get(value, "neither")
        elif name == "digest":
            shown["value"] = "the bytes of the input"
        else:
            shown[name] = None if isinstance(value, float) and math.isnan(value) else value
    return shown


def _key_text(key: bytes | None) -> str | None:
    text = None if key is None else key.decode("utf-8", "backslashreplace")
    return text if text is None else text[:MAX_KEY_CHARACTERS]
