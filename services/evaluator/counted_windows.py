"""The oracles of windows that are due when all their records are present: an aggregate whose
records state how many there are, and a change between such windows.

Outputs are addressed by the start of their window and their keys. The inputs of a window are stored
in `window_state.py`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas.domain import WINDOW_END, WINDOW_START, StageSpec
from services.evaluator.columns import UNKNOWN, Bools, Columns, Floats, Group, Ints
from services.evaluator.decode import Decoded
from services.evaluator.output_columns import Context, OutputColumns
from services.evaluator.outputs import Outputs
from services.evaluator.stages import NEVER, Expected, KeyedOracle
from services.evaluator.values import Values
from services.evaluator.window_state import Sum, WindowState


class _OverCountedWindows(KeyedOracle):
    """Addresses outputs of both stages by window start and keys."""

    spec: StageSpec
    state: WindowState
    columns: OutputColumns

    @property
    def compared(self) -> list[str]:
        """Columns that outputs are compared by."""
        made = [one.column for one in self.spec.aggregates]
        return [WINDOW_END, *made, *(one.column for one in self.spec.changes)]

    def outputs(self, decoded: Decoded, appended_ms: Ints, digest: Ints) -> Outputs:  # noqa: ARG002
        """Addresses and compared columns of decoded output records."""
        content = self.columns.content(decoded, self.compared)
        return Outputs(*self.addresses(decoded), appended_ms, content)

    def addresses(self, decoded: Decoded) -> tuple[Ints, Ints]:
        """Window starts and key codes."""
        keys = self.columns.keys(decoded, self.spec.keys)
        index = self.state.keys.of(keys, of_outputs=True)
        return decoded.ints(WINDOW_START), index

    def named(self, group: int, code: int) -> dict[str, Any]:
        """Keys and window."""
        keys = zip(self.spec.keys, self.state.keys.values(code), strict=True)
        return dict(keys) | {WINDOW_START: group}


class Aggregated(_OverCountedWindows):
    """The oracle of an aggregate.

    publishes: whether partial windows are published as well, if they have a record of every input.
    """

    state: WindowState

    def __init__(
        self,
        context: Context,
        spec: StageSpec,
        state: WindowState,
        publishes: bool,
    ) -> None:
        self.spec = spec
        self.state = state
        self.grows = publishes
        self.columns = OutputColumns(context, spec)

    def cells_of(self, group: int) -> Group | None:
        """The cells of a window."""
        return self.state.windows.get(group)

    def expected(self, group: int, at: Ints) -> Expected:
        """Expected outputs at some indices."""
        state, cells = self.state, self.state.windows[group]
        counts = [cells[f"records of {kind}"][at] for kind in state.kinds]
        return Expected(
            state.has_all(group, at) if self.grows else state.complete(group, at),
            cells["latest_ms"][at],
            _in_all(counts),
            cells["appended_sum"][at],
            cells["scheduled_us"][at],
            state.base_ms,
        )

    def content(self, group: int, at: Ints) -> dict[str, Values]:
        """The aggregates and the window's end."""
        cells = self.state.windows[group]
        ends = {WINDOW_END: Values(np.full(len(at), group + self.state.size_ms))}
        return ends | {one.spec.column: one.values(cells, at) for one in self.state.sums}


class Changed(_OverCountedWindows):
    """The oracle of a change between consecutive windows of an aggregate, called its parts. Keys
    have their positions in the newest part, without which no output is due.

    publishes: whether partial windows count as well. A window is then due if its newest part has
    records, and a change against a part without records is null.
    """

    state: WindowState

    def __init__(
        self,
        context: Context,
        spec: StageSpec,
        state: WindowState,
        publishes: bool,
    ) -> None:
        assert spec.window is not None
        self.spec = spec
        self.state = state
        self.grows = publishes
        self._number = spec.window.parts
        self._sums = {one.spec.column: one for one in state.sums}
        self.columns = OutputColumns(context, spec)

    def parts(self, group: int) -> list[int]:
        """Windows of the aggregate, oldest first."""
        return [group + self.state.size_ms * part for part in range(self._number)]

    def dependent_groups(self, group: int) -> list[int]:
        """Windows that a window of the aggregate is a part of, oldest first."""
        return [group - self.state.size_ms * part for part in reversed(range(self._number))]

    def newest_ms(self, group: int) -> int:
        """LogAppendTime of the newest input of a window."""
        return max(self.state.newest_ms.get(start, NEVER) for start in self.parts(group))

    def cells_of(self, group: int) -> Group | None:
        """The cells of a window's newest part."""
        return self.state.windows.get(self.parts(group)[-1])

    def size(self, group: int) -> int:
        """Number of cells of a window's newest part; 0 without a part that it requires."""
        whole = self.grows or all(one in self.state.windows for one in self.parts(group))
        return super().size(group) if whole else 0

    def expected(self, group: int, at: Ints) -> Expected:
        """Expected outputs at some indices."""
        parts = self._parts(group, at)
        has = [part.has for part in parts]
        return Expected(
            has[-1] if self.grows else np.logical_and.reduce(has),
            np.maximum.reduce([part.of("latest_ms", NEVER) for part in parts]),
            _in_all([part.of(f"records of {k}", 0) for part in parts for k in self.state.kinds]),
            np.add.reduce([part.of("appended_sum", 0) for part in parts]),
            np.maximum.reduce([part.of("scheduled_us", NEVER) for part in parts]),
            self.state.base_ms,
        )

    def content(self, group: int, at: Ints) -> dict[str, Values]:
        """The changes and the window's end."""
        length_ms = self.state.size_ms * self._number
        found = {WINDOW_END: Values(np.full(len(at), group + length_ms))}
        parts = self._parts(group, at)
        for one in self.spec.changes:
            new, old = (
                part.values(self._sums[one.of]) for part in (parts[-1], parts[-1 - one.back])
            )
            found[one.column] = changed(new, old)
        return found

    def _parts(self, group: int, at: Ints) -> "list[_Part]":
        codes = self.codes(group, at)
        return [self._part(start, codes) for start in self.parts(group)]

    def _part(self, start: int, codes: Ints) -> "_Part":
        cells = self.state.windows.get(start)
        if cells is None:
            return _Part(None, np.zeros(len(codes), bool), codes[:0])
        at = cells.positions(codes)
        known = np.flatnonzero(at != UNKNOWN)
        rule = self.state.has_all if self.grows else self.state.complete
        has = np.zeros(len(at), bool)
        has[known] = rule(start, at[known])
        return _Part(cells, has, at[has])


@dataclass(frozen=True)
class _Part:
    """One window of the aggregate at some keys. has: which keys have records; at: their
    positions."""

    cells: Columns | None
    has: Bools
    at: Ints

    def of(self, name: str, otherwise: int) -> Ints:
        """A column; `otherwise` for keys without records."""
        found = np.full(len(self.has), otherwise, np.int64)
        if self.cells is not None:
            found[self.has] = self.cells[name][self.at]
        return found

    def values(self, one: Sum) -> Values:
        """An aggregate; NaN for keys without records."""
        found, scale = np.full((2, len(self.has)), np.nan)
        if self.cells is not None:
            values = one.values(self.cells, self.at)
            found[self.has] = values.values
            scale[self.has] = 0 if values.scale is None else values.scale
        return Values(found, scale)


def changed(new: Values, old: Values) -> Values:
    """(new - old) / old; NaN if old is 0 or missing."""
    assert new.scale is not None
    assert old.scale is not None
    new_size: Floats = new.scale
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        change = np.where(old.values == 0, np.nan, (new.values - old.values) / old.values)
        carried = (new_size + np.abs(new.values / old.values) * old.scale) / np.abs(old.values)
    return Values(change, np.maximum(np.maximum(1.0, np.abs(change)), carried))


def _in_all(counts: list[Ints]) -> Ints:
    """Total number of records, at least one."""
    total: Ints = np.maximum(np.add.reduce(counts), 1).astype(np.int64)
    return total
