"""What each stage must publish, computed from the inputs: where an output belongs, whether the
inputs imply it, which times its inputs have and whether its content is right.

Outputs are addressed by (group, index): block and place of the sequence for ingest and parse,
event time and lane for join, window and site for tumbling and sliding (`windows.py`).
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from services.evaluator.columns import Bools, Floats, Ints
from services.evaluator.inputs import BLOCK, Inputs
from services.evaluator.outputs import Outputs


@dataclass(frozen=True)
class Expected:
    """What the inputs imply at some indices of a group.

    implied: whether an output is due at all; the rest holds only where it is. latest_ms: the latest
    LogAppendTime of the contributing inputs; inputs: how many they are; appended_sum: the sum of
    their LogAppendTimes, each less base_ms; scheduled_us: the latest of their scheduled times.
    """

    implied: Bools
    latest_ms: Ints
    inputs: Ints
    appended_sum: Ints
    scheduled_us: Ints
    base_ms: int

    def mean_latency_ms(self, appended_ms: Ints) -> Ints:
        """LogAppendTimes of outputs less the mean of their inputs', in whole milliseconds. Halves
        round up. Exact: no mean is made."""
        total = self.inputs * (appended_ms - self.base_ms) - self.appended_sum
        rounded: Ints = (2 * total + self.inputs) // (2 * self.inputs)
        return rounded

    def mean_input_ms(self) -> Floats:
        """The mean of the inputs' LogAppendTimes, rounded up to 1/1024 ms, which a float holds
        until the year 2248. Halves are among these steps, so the latency that is computed from it
        and rounded is `mean_latency_ms`."""
        whole, rest = np.divmod(self.appended_sum, self.inputs)
        mean: Floats = (self.base_ms + whole) - (-1024 * rest // self.inputs) / 1024
        return mean

    def take(self, rows: Bools) -> "Expected":
        """The given rows."""
        return Expected(
            self.implied[rows],
            self.latest_ms[rows],
            self.inputs[rows],
            self.appended_sum[rows],
            self.scheduled_us[rows],
            self.base_ms,
        )


class Stage(Protocol):
    """The rules of one stage."""

    name: str
    memory: str
    grows: bool  # whether more inputs imply another output, instead of one where there was none

    def parts(self, group: int) -> list[int]:
        """Groups of inputs that the outputs of a group are made of, oldest first."""

    def fed_by(self, group: int) -> list[int]:
        """Groups of outputs that the inputs of a group are a part of, oldest first."""

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

    def address(self, inputs: Inputs, group: int, index: int) -> dict[str, Any]:
        """What an output is about, in names, for a sample shown to people."""


def equal_columns(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> Bools:
    """Which cells are equal; not a number (or null) equals itself."""
    if actual.dtype.kind != "f":
        whole: Bools = actual == expected
        return whole
    equal: Bools = (actual == expected) | ((actual != actual) & (expected != expected))  # noqa: PLR0124
    return equal


class _BySequence:
    memory = "sequences"
    grows = False

    def parts(self, group: int) -> list[int]:
        return [group]

    def fed_by(self, group: int) -> list[int]:
        return [group]

    def newest_ms(self, inputs: Inputs, group: int) -> int:
        return inputs.newest_ms["sequences"][group]

    def size(self, inputs: Inputs, group: int) -> int:
        return BLOCK if group in inputs.sequences else 0

    def expected(self, inputs: Inputs, group: int, at: Ints) -> Expected:
        cells = inputs.sequences[group]
        appended = cells["appended_ms"][at]
        return Expected(
            cells["seen"][at] > 0,
            appended,
            np.ones(len(at), np.int64),
            appended - inputs.base_ms,
            cells["scheduled_us"][at],
            inputs.base_ms,
        )

    def address(self, inputs: Inputs, group: int, index: int) -> dict[str, Any]:
        cells, sequence = inputs.sequences.get(group), {"sequence": group * BLOCK + index}
        if cells is None or not cells["seen"][index]:
            return sequence
        return sequence | inputs.channel_names(int(cells["channel"][index]))


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
            equal &= equal_columns(rows.content[column], cells[column][rows.index])
        return equal

    def wanted(self, inputs: Inputs, group: int, index: int) -> dict[str, Any]:
        cells = inputs.sequences[group]
        return {column: cells[column][index].item() for column in self.columns}


class Join:
    """Stage 2: flow and speed of the same measurement id, lane and event time."""

    name = "join"
    memory = "instants"
    grows = False

    def parts(self, group: int) -> list[int]:
        return [group]

    def fed_by(self, group: int) -> list[int]:
        return [group]

    def newest_ms(self, inputs: Inputs, group: int) -> int:
        return inputs.newest_ms["instants"][group]

    def size(self, inputs: Inputs, group: int) -> int:
        cells = inputs.instants.get(group)
        return cells.size if cells else 0

    def expected(self, inputs: Inputs, group: int, at: Ints) -> Expected:
        cells = inputs.instants[group]
        flow_ms, speed_ms = cells["flow_appended_ms"][at], cells["speed_appended_ms"][at]
        implied = (flow_ms > 0) & (speed_ms > 0)
        base_ms = inputs.base_ms
        total = np.where(implied, (flow_ms - base_ms) + (speed_ms - base_ms), 0)
        return Expected(
            implied,
            np.maximum(flow_ms, speed_ms),
            np.full(len(at), 2),
            total,
            cells["scheduled_us"][at],
            base_ms,
        )

    def same(self, inputs: Inputs, rows: Outputs, tolerance: float) -> Bools:  # noqa: ARG002
        cells = inputs.instants[int(rows.group[0])]
        equal = np.ones(len(rows), bool)
        for column in ("num_lanes", "flow", "speed"):
            equal &= equal_columns(rows.content[column], cells[column][rows.index])
        return equal

    def wanted(self, inputs: Inputs, group: int, index: int) -> dict[str, Any]:
        cells = inputs.instants[group]
        return {column: cells[column][index].item() for column in ("num_lanes", "flow", "speed")}

    def address(self, inputs: Inputs, group: int, index: int) -> dict[str, Any]:
        return inputs.channel_names(index) | {"observed_at": group}
