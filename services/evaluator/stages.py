"""What each stage must publish, computed from the inputs: where an output belongs, whether the
inputs imply it, which times its inputs have and whether its content is right.

Outputs are addressed by (group, index): block and place of the sequence for ingest and parse,
event time and lane for join, window and site for tumbling and sliding.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from services.evaluator.columns import UNKNOWN, Bools, Columns, Floats, Ints
from services.evaluator.inputs import BLOCK, FLOW, SPEED, WINDOW_MS, Inputs, complete_windows

Content = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Outputs:
    """Output records of one pipeline and stage, one row each, in topic order.

    group, index: address; UNKNOWN index where nothing has that name. appended_ms: the broker's
    LogAppendTime. content: the columns that are compared, by name.
    """

    group: Ints
    index: Ints
    appended_ms: Ints
    content: Content

    def __len__(self) -> int:
        return len(self.group)

    def take(self, rows: Ints | slice) -> "Outputs":
        """The given rows, in the given order."""
        content = {name: column[rows] for name, column in self.content.items()}
        return Outputs(self.group[rows], self.index[rows], self.appended_ms[rows], content)


def concat(parts: list[Outputs]) -> Outputs:
    """All rows, in order. `parts` must not be empty."""
    names = parts[0].content
    return Outputs(
        np.concatenate([part.group for part in parts]),
        np.concatenate([part.index for part in parts]),
        np.concatenate([part.appended_ms for part in parts]),
        {name: np.concatenate([part.content[name] for part in parts]) for name in names},
    )


@dataclass(frozen=True)
class Expected:
    """What the inputs imply at some indices of a group.

    implied: whether an output is due at all; the rest holds only where it is. latest_ms and
    mean_ms: LogAppendTime of the contributing inputs, latest and mean; scheduled_us: the latest
    of their scheduled times.
    """

    implied: Bools
    latest_ms: Ints
    mean_ms: Floats
    scheduled_us: Ints


class Stage(Protocol):
    """The rules of one stage."""

    name: str
    memory: str

    def groups(self, inputs: Inputs) -> list[int]:
        """Groups in which something may be due."""

    def depends(self, group: int, touched: dict[str, set[int]]) -> bool:
        """Whether inputs that were added to these groups, by memory, may change this one."""

    def newest_ms(self, inputs: Inputs, group: int) -> int:
        """LogAppendTime of the newest input of a group."""

    def size(self, inputs: Inputs, group: int) -> int:
        """Indices of a group are below this."""

    def expected(self, inputs: Inputs, group: int, at: Ints) -> Expected:
        """What the inputs imply at indices `at`, all of them in [0, size)."""

    def same(self, inputs: Inputs, rows: Outputs, tolerance: float) -> Bools:
        """Whether each row says what the inputs imply; all rows are of one group and implied."""

    def wanted(self, inputs: Inputs, group: int, index: int) -> dict[str, Any]:
        """Expected content, for a sample shown to people."""


def _near(actual: Floats, expected: Floats, tolerance: float, scale: Floats) -> Bools:
    with np.errstate(invalid="ignore"):  # infinity less infinity
        near: Bools = np.abs(actual - expected) <= tolerance * scale
    return near & np.isfinite(expected) | _equal(actual, expected)


def _equal(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> Bools:
    """Equal; not a number (or null) equals itself."""
    if actual.dtype.kind != "f":
        whole: Bools = actual == expected
        return whole
    equal: Bools = (actual == expected) | ((actual != actual) & (expected != expected))  # noqa: PLR0124
    return equal


class _BySequence:
    memory = "sequences"

    def depends(self, group: int, touched: dict[str, set[int]]) -> bool:
        return group in touched[self.memory]

    def groups(self, inputs: Inputs) -> list[int]:
        return list(inputs.sequences)

    def newest_ms(self, inputs: Inputs, group: int) -> int:
        return inputs.newest_ms["sequences"][group]

    def size(self, inputs: Inputs, group: int) -> int:
        return BLOCK if group in inputs.sequences else 0

    def expected(self, inputs: Inputs, group: int, at: Ints) -> Expected:
        cells = inputs.sequences[group]
        appended = cells["appended_ms"][at]
        return Expected(
            cells["seen"][at] > 0, appended, appended.astype(np.float64), cells["scheduled_us"][at]
        )


class Ingest(_BySequence):
    """Stage 0: the raw bytes of every input, as they came."""

    name = "ingest"

    def same(self, inputs: Inputs, rows: Outputs, tolerance: float) -> Bools:  # noqa: ARG002
        cells = inputs.sequences[int(rows.group[0])]
        equal: Bools = cells["digest"][rows.index] == rows.content["digest"]
        return equal

    def wanted(self, inputs: Inputs, group: int, index: int) -> dict[str, Any]:
        return {"digest": int(inputs.sequences[group]["digest"][index])}


class Parse(_BySequence):
    """Stage 1: every input, decoded."""

    name = "parse"
    columns = (
        "kind",
        "channel",
        "num_lanes",
        "observed_ms",
        "latitude",
        "longitude",
        "period_s",
        "accuracy_percent",
        "value",
    )

    def same(self, inputs: Inputs, rows: Outputs, tolerance: float) -> Bools:  # noqa: ARG002
        cells = inputs.sequences[int(rows.group[0])]
        equal = np.ones(len(rows), bool)
        for column in self.columns:
            equal &= _equal(rows.content[column], cells[column][rows.index])
        return equal

    def wanted(self, inputs: Inputs, group: int, index: int) -> dict[str, Any]:
        cells = inputs.sequences[group]
        return {column: cells[column][index].item() for column in self.columns}


class Join:
    """Stage 2: flow and speed of the same measurement id, lane and event time."""

    name = "join"
    memory = "instants"

    def depends(self, group: int, touched: dict[str, set[int]]) -> bool:
        return group in touched[self.memory]

    def groups(self, inputs: Inputs) -> list[int]:
        return list(inputs.instants)

    def newest_ms(self, inputs: Inputs, group: int) -> int:
        return inputs.newest_ms["instants"][group]

    def size(self, inputs: Inputs, group: int) -> int:
        cells = inputs.instants.get(group)
        return cells.size if cells else 0

    def expected(self, inputs: Inputs, group: int, at: Ints) -> Expected:
        cells = inputs.instants[group]
        flow_ms, speed_ms = cells["flow_appended_ms"][at], cells["speed_appended_ms"][at]
        implied = (flow_ms > 0) & (speed_ms > 0)
        mean_ms = np.where(implied, (flow_ms / 2.0) + (speed_ms / 2.0), 0.0)
        return Expected(implied, np.maximum(flow_ms, speed_ms), mean_ms, cells["scheduled_us"][at])

    def same(self, inputs: Inputs, rows: Outputs, tolerance: float) -> Bools:  # noqa: ARG002
        cells = inputs.instants[int(rows.group[0])]
        equal = np.ones(len(rows), bool)
        for column in ("num_lanes", "flow", "speed"):
            equal &= _equal(rows.content[column], cells[column][rows.index])
        return equal

    def wanted(self, inputs: Inputs, group: int, index: int) -> dict[str, Any]:
        cells = inputs.instants[group]
        return {column: cells[column][index].item() for column in ("num_lanes", "flow", "speed")}


class Tumbling:
    """Stage 3: per site and window of 1 s, over all lanes: lanes, sum of flow, mean of speed."""

    name = "tumbling"
    memory = "windows"

    def depends(self, group: int, touched: dict[str, set[int]]) -> bool:
        return group in touched[self.memory]

    def groups(self, inputs: Inputs) -> list[int]:
        return list(inputs.windows)

    def newest_ms(self, inputs: Inputs, group: int) -> int:
        return inputs.newest_ms["windows"][group]

    def size(self, inputs: Inputs, group: int) -> int:
        cells = inputs.windows.get(group)
        return cells.size if cells else 0

    def expected(self, inputs: Inputs, group: int, at: Ints) -> Expected:
        cells = inputs.windows[group]
        count = cells["flows"][at] + cells["speeds"][at]
        mean_ms = cells["appended_sum"][at] / np.maximum(count, 1)
        return Expected(
            complete_windows(cells, at), cells["latest_ms"][at], mean_ms, cells["scheduled_us"][at]
        )

    def same(self, inputs: Inputs, rows: Outputs, tolerance: float) -> Bools:
        cells, at = inputs.windows[int(rows.group[0])], rows.index
        speed = cells["speed_sum"][at] / cells["speeds"][at]
        equal: Bools = rows.content["length_ms"] == WINDOW_MS
        equal &= rows.content["lanes"] == cells["flows"][at]
        equal &= rows.content["flow"] == cells["flow_sum"][at]
        return equal & _near(rows.content["speed"], speed, tolerance, np.abs(speed))

    def wanted(self, inputs: Inputs, group: int, index: int) -> dict[str, Any]:
        cells = inputs.windows[group]
        return {
            "length_ms": WINDOW_MS,
            "lanes": int(cells["flows"][index]),
            "flow": float(cells["flow_sum"][index]),
            "speed": float(cells["speed_sum"][index] / cells["speeds"][index]),
        }


class Sliding:
    """Stage 4: per site and window of 3 s sliding by 1 s, relative change (new - old) / old of
    flow and of speed, newest second against 1 s (short) and 2 s (long) before."""

    name = "sliding"
    memory = "windows"
    seconds = 3
    columns = ("flow_change_short", "flow_change_long", "speed_change_short", "speed_change_long")

    def depends(self, group: int, touched: dict[str, set[int]]) -> bool:
        seconds = {group + WINDOW_MS * second for second in range(self.seconds)}
        return not seconds.isdisjoint(touched[self.memory])

    def groups(self, inputs: Inputs) -> list[int]:
        return [start for start in inputs.windows if self._parts(inputs, start) is not None]

    def newest_ms(self, inputs: Inputs, group: int) -> int:
        newest = inputs.newest_ms["windows"]
        return max(newest[group + WINDOW_MS * second] for second in range(self.seconds))

    def size(self, inputs: Inputs, group: int) -> int:
        parts = self._parts(inputs, group)
        return min(cells.size for cells in parts) if parts else 0

    def expected(self, inputs: Inputs, group: int, at: Ints) -> Expected:
        parts = self._parts(inputs, group) or []
        count = sum(cells["flows"][at] + cells["speeds"][at] for cells in parts)
        total = sum(cells["appended_sum"][at] for cells in parts)
        return Expected(
            np.logical_and.reduce([complete_windows(cells, at) for cells in parts]),
            np.maximum.reduce([cells["latest_ms"][at] for cells in parts]),
            total / np.maximum(count, 1),
            np.maximum.reduce([cells["scheduled_us"][at] for cells in parts]),
        )

    def same(self, inputs: Inputs, rows: Outputs, tolerance: float) -> Bools:
        equal: Bools = rows.content["length_ms"] == WINDOW_MS * self.seconds
        wanted = self._changes(inputs, int(rows.group[0]), rows.index)
        for column in self.columns:
            scale = np.maximum(1.0, np.abs(wanted[column]))
            equal &= _near(rows.content[column], wanted[column], tolerance, scale)
        return equal

    def wanted(self, inputs: Inputs, group: int, index: int) -> dict[str, Any]:
        changes = self._changes(inputs, group, np.array([index]))
        return {name: None if np.isnan(v[0]) else float(v[0]) for name, v in changes.items()}

    def _parts(self, inputs: Inputs, group: int) -> list[Columns] | None:
        parts = [inputs.windows.get(group + WINDOW_MS * n) for n in range(self.seconds)]
        found = [cells for cells in parts if cells is not None]
        return found if len(found) == self.seconds else None

    def _changes(self, inputs: Inputs, group: int, at: Ints) -> dict[str, Floats]:
        parts = self._parts(inputs, group) or []
        flow = [cells["flow_sum"][at] for cells in parts]
        speed = [cells["speed_sum"][at] / cells["speeds"][at] for cells in parts]
        return {
            "flow_change_short": relative_change(flow[2], flow[1]),
            "flow_change_long": relative_change(flow[2], flow[0]),
            "speed_change_short": relative_change(speed[2], speed[1]),
            "speed_change_long": relative_change(speed[2], speed[0]),
        }


def relative_change(new: Floats, old: Floats) -> Floats:
    """(new - old) / old; not a number where old is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(old == 0, np.nan, (new - old) / old)


RULES: dict[str, Stage] = {
    rule.name: rule for rule in (Ingest(), Parse(), Join(), Tumbling(), Sliding())
}

__all__ = ["FLOW", "RULES", "SPEED", "UNKNOWN", "Expected", "Outputs", "Stage", "concat"]
