"""What the stages over windows must publish, tumbling and sliding.

Means and changes are floats whose sums an engine may add in any order. The rounding error of a
sum is bounded by the sum of the absolute values (Higham, Accuracy and Stability of Numerical
Algorithms, §4.2), so that is what the tolerance is relative to: with values of both signs a mean
may be small and its error is not.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas.workload import Windows
from services.evaluator.columns import Bools, Columns, Floats, Ints
from services.evaluator.inputs import Inputs, complete_windows
from services.evaluator.outputs import Outputs
from services.evaluator.stages import Expected, equal_columns


def near(actual: Floats, expected: Floats, tolerance: float, scale: Floats) -> Bools:
    """Which cells differ by no more than the tolerance times the scale, or are equal."""
    with np.errstate(invalid="ignore"):  # infinity less infinity
        near: Bools = np.abs(actual - expected) <= tolerance * scale
    return near & np.isfinite(expected) | equal_columns(actual, expected)


def counted(kinds: list[Ints]) -> Ints:
    """How many inputs there are in all, at least one."""
    total: Ints = np.maximum(np.add.reduce(kinds), 1).astype(np.int64)
    return total


class _ByWindow:
    memory = "windows"
    grows = False

    def address(self, inputs: Inputs, group: int, index: int) -> dict[str, Any]:
        return {"measurement_id": inputs.site_name(index), "window_start": group}


class Tumbling(_ByWindow):
    """Stage 3: per site and tumbling window, over all lanes: lanes, sum of flow, mean of speed."""

    name = "tumbling"

    def parts(self, group: int) -> list[int]:
        return [group]

    def fed_by(self, group: int) -> list[int]:
        return [group]

    def newest_ms(self, inputs: Inputs, group: int) -> int:
        return inputs.newest_ms["windows"][group]

    def size(self, inputs: Inputs, group: int) -> int:
        cells = inputs.windows.get(group)
        return cells.size if cells else 0

    def expected(self, inputs: Inputs, group: int, at: Ints) -> Expected:
        cells = inputs.windows[group]
        return Expected(
            complete_windows(cells, at, inputs.window_ms),
            cells["latest_ms"][at],
            counted([cells["flows"][at], cells["speeds"][at]]),
            cells["appended_sum"][at],
            cells["scheduled_us"][at],
            inputs.base_ms,
        )

    def same(self, inputs: Inputs, rows: Outputs, tolerance: float) -> Bools:
        cells, at = inputs.windows[int(rows.group[0])], rows.index
        speed = cells["speed_sum"][at] / cells["speeds"][at]
        scale = cells["speed_size"][at] / cells["speeds"][at]
        equal: Bools = rows.content["length_ms"] == inputs.window_ms
        equal &= rows.content["lanes"] == cells["lanes"][at]
        equal &= rows.content["flow"] == cells["flow_sum"][at]
        return equal & near(rows.content["speed"], speed, tolerance, scale)

    def wanted(self, inputs: Inputs, group: int, index: int) -> dict[str, Any]:
        cells = inputs.windows[group]
        return {
            "length_ms": inputs.window_ms,
            "lanes": int(cells["lanes"][index]),
            "flow": float(cells["flow_sum"][index]),
            "speed": float(cells["speed_sum"][index] / cells["speeds"][index]),
        }


class Sliding(_ByWindow):
    """Stage 4: per site and sliding window, relative change (new - old) / old of flow and of
    speed, newest part against the one before (short) and the one before that (long). The parts
    are tumbling windows."""

    name = "sliding"

    def __init__(self, windows: Windows) -> None:
        self._part_ms = 1000 * windows.tumbling_s
        self._number = windows.parts

    def parts(self, group: int) -> list[int]:
        return [group + self._part_ms * part for part in range(self._number)]

    def fed_by(self, group: int) -> list[int]:
        return [group - self._part_ms * part for part in reversed(range(self._number))]

    def newest_ms(self, inputs: Inputs, group: int) -> int:
        newest = inputs.newest_ms["windows"]
        return max(newest[start] for start in self.parts(group))

    def size(self, inputs: Inputs, group: int) -> int:
        parts = self._parts(inputs, group)
        return min(cells.size for cells in parts) if parts else 0

    def expected(self, inputs: Inputs, group: int, at: Ints) -> Expected:
        parts = self._parts(inputs, group) or []
        return Expected(
            np.logical_and.reduce([complete_windows(cells, at, self._part_ms) for cells in parts]),
            np.maximum.reduce([cells["latest_ms"][at] for cells in parts]),
            counted([cells[kind][at] for cells in parts for kind in ("flows", "speeds")]),
            np.add.reduce([cells["appended_sum"][at] for cells in parts]),
            np.maximum.reduce([cells["scheduled_us"][at] for cells in parts]),
            inputs.base_ms,
        )

    def same(self, inputs: Inputs, rows: Outputs, tolerance: float) -> Bools:
        equal: Bools = rows.content["length_ms"] == self._part_ms * self._number
        wanted = self._changes(inputs, int(rows.group[0]), rows.index)
        for column, change in wanted.items():
            equal &= near(rows.content[column], change.value, tolerance, change.scale)
        return equal

    def wanted(self, inputs: Inputs, group: int, index: int) -> dict[str, Any]:
        changes = self._changes(inputs, group, np.array([index]))
        values = {name: change.value[0] for name, change in changes.items()}
        return {name: None if np.isnan(one) else float(one) for name, one in values.items()}

    def _parts(self, inputs: Inputs, group: int) -> list[Columns] | None:
        parts = [inputs.windows.get(start) for start in self.parts(group)]
        found = [cells for cells in parts if cells is not None]
        return found if len(found) == self._number else None

    def _changes(self, inputs: Inputs, group: int, at: Ints) -> dict[str, "Change"]:
        parts = (self._parts(inputs, group) or [])[-3:]
        return changes(
            [cells["flow_sum"][at] for cells in parts],
            [cells["speed_sum"][at] / cells["speeds"][at] for cells in parts],
            [cells["speed_size"][at] / cells["speeds"][at] for cells in parts],
        )


@dataclass(frozen=True)
class Change:
    """Relative changes, and against what an error of them is to be held."""

    value: Floats
    scale: Floats


def changes(flow: list[Floats], speed: list[Floats], size: list[Floats]) -> dict[str, Change]:
    """Changes of the newest of three parts against those before it, oldest part first.

    size: means of the absolute values behind each mean speed. Sums of flow are whole numbers and
    have no error.
    """
    none = np.zeros(len(flow[0]))
    return {
        "flow_change_short": _change(flow[2], flow[1], none, none),
        "flow_change_long": _change(flow[2], flow[0], none, none),
        "speed_change_short": _change(speed[2], speed[1], size[2], size[1]),
        "speed_change_long": _change(speed[2], speed[0], size[2], size[0]),
    }


def _change(new: Floats, old: Floats, new_size: Floats, old_size: Floats) -> Change:
    """(new - old) / old; not a number where old is 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value = np.where(old == 0, np.nan, (new - old) / old)
        carried = (new_size + np.abs(new / old) * old_size) / np.abs(old)
    return Change(value, np.maximum(np.maximum(1.0, np.abs(value)), carried))
