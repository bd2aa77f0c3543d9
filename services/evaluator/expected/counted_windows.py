"""The oracles of windows that are due when all their records are present: an aggregate whose
records state how many there are, and a change between such windows.

Outputs are addressed by the start of their window and their keys. The state holds by window and
keys the number of records of each input and what the aggregates need of them.

A record counts once per `every_s`, input, keys and the columns `once_per`: the first in order of
LogAppendTime (`append_order.py`). If records disagree on the number of records, the largest number
applies.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas.domain import WINDOW_END, WINDOW_START, Aggregate, StageSpec
from services.evaluator.columnar.column_mapping import Column, ExpectedColumn, InputRows, RowSteps
from services.evaluator.columnar.columns import (
    UNKNOWN,
    Bools,
    CellGroups,
    Columns,
    Floats,
    Group,
    Ints,
    first_of_each,
)
from services.evaluator.columnar.decode import Decoded
from services.evaluator.columnar.outputs import Context, OutputColumns
from services.evaluator.columnar.value_codes import KeyCodes
from services.evaluator.expected.stages import (
    GROUP_CELLS,
    NEVER,
    Expected,
    KeyedOracle,
    add_offsets,
    kinds_of,
    offset_cells,
    offset_of,
    offsets_at,
)
from services.runtime.counting import by_value

_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class AggregateState:
    """State of one aggregate: its column and function, and the source column of each input by
    index.

    is_float: its values are floats. distinct: codes of keys and value, if distinct values are
    counted; None if every counted record has a different one.
    """

    spec: Aggregate
    sources: dict[int, str]
    is_float: bool
    distinct: KeyCodes | None = None

    @property
    def _name(self) -> str:
        """Name of the column of the state. A column of the record may be named like another."""
        return f"value of {self.spec.column}"

    def cells(self) -> dict[str, tuple[Any, Any]]:
        """Columns of the state."""
        name, dtype = self._name, np.float64 if self.is_float else np.int64
        kept: dict[str, tuple[Any, Any]] = {}
        if self.spec.function in ("sum", "mean"):
            kept[name] = (dtype, 0)
            if self.is_float:
                kept[f"size of {name}"] = (np.float64, 0)
        elif self.spec.function == "min":
            kept[name] = (dtype, np.nan if self.is_float else _LAST)
        elif self.spec.function == "max":
            kept[name] = (dtype, -np.inf if self.is_float else NEVER)
        elif self.spec.function == "first":
            kept |= {name: (dtype, 0), f"time of {name}": (np.int64, _LAST)}
        elif self.spec.function == "count_distinct":
            kept[name] = (np.int32, 0)
        return kept

    def add(self, cells: Columns, at: Ints, rows: InputRows, picked: Ints) -> None:
        """Add the picked rows, whose keys have the positions `at`."""
        name, function = self._name, self.spec.function
        if function == "count" or rows.kind not in self.sources:
            return
        if function == "count_distinct":
            np.add.at(cells[name], at, 1)
            return
        values = rows.column(self.sources[rows.kind])[picked]
        if function in ("sum", "mean"):
            np.add.at(cells[name], at, values)
            if self.is_float:
                np.add.at(cells[f"size of {name}"], at, np.abs(values))
        elif function == "min":
            np.fmin.at(cells[name], at, values)
        elif function == "max":
            np.maximum.at(cells[name], at, values)
        else:
            self._add_first(cells, at, values, rows.appended_ms[picked])

    def _add_first(self, cells: Columns, at: Ints, values: Column, appended_ms: Ints) -> None:
        order = np.argsort(appended_ms, kind="stable")
        order = order[first_of_each(at[order])]
        times = cells[f"time of {self._name}"]
        order = order[appended_ms[order] < times[at[order]]]
        times[at[order]] = appended_ms[order]
        cells[self._name][at[order]] = values[order]

    def values(self, cells: Columns, at: Ints) -> ExpectedColumn:
        """The column of the output."""
        name, function = self._name, self.spec.function
        if function == "count":
            return ExpectedColumn(self._count(cells, at))
        result = cells[name][at]
        if function in ("sum", "mean"):
            size = cells[f"size of {name}"][at] if self.is_float else None
            if function == "sum":
                return ExpectedColumn(result, size)
            count = np.maximum(self._count(cells, at), 1)
            return ExpectedColumn(
                result / count, (np.abs(result) if size is None else size) / count
            )
        return ExpectedColumn(result)

    def _count(self, cells: Columns, at: Ints) -> Ints:
        count: Ints = np.add.reduce([cells[f"records of {kind}"][at] for kind in self.sources])
        return count


class WindowState:
    """By window and keys: the number of records of each input, and what the aggregates need of
    them. Bounded by `evict`.

    kinds: indices of the inputs. base_ms: a time near the inputs', subtracted before times are
    summed.
    """

    def __init__(
        self,
        context: Context,
        spec: StageSpec,
        sums: list[AggregateState],
        steps: RowSteps,
    ) -> None:
        assert spec.window is not None
        assert spec.complete is not None
        self.size_ms, self.slide_ms = 1000 * spec.window.size_s, 1000 * spec.window.slide_s
        self.kinds = kinds_of(context.domain, spec)
        self.sums = sums
        self.base_ms = context.base_ms
        self.due = self.size_ms // (1000 * spec.complete.every_s)  # multiplied by the column
        self.limit_column = spec.complete.column
        self._spec = spec
        self._every_ms = 1000 * spec.complete.every_s
        self._steps = steps
        names = context.names
        self.keys = KeyCodes([names[key] for key in spec.keys])
        self._units = KeyCodes([names[key] for key in (*spec.keys, *spec.once_per)])
        cells: dict[str, tuple[Any, Any]] = {
            "limit": (np.int64, 0),
            "appended_sum": (np.int64, 0),  # of milliseconds since base_ms
            "latest_ms": (np.int64, NEVER),
            "scheduled_us": (np.int64, NEVER),
        }
        cells |= {f"records of {kind}": (np.int32, 0) for kind in self.kinds}
        cells |= offset_cells(context.sources)
        self.sources = context.sources
        for each in sums:
            cells |= each.cells()
        self._flags = {str(kind): (np.bool_, False) for kind in self.kinds}
        self.windows = CellGroups(cells)
        self.newest_ms: dict[int, int] = {}
        self._counted = CellGroups(self._flags)  # by every_s: units, of each input
        # By column; in each, by window: values.
        self._distinct = {
            each.spec.column: CellGroups({"seen": (np.bool_, False)})
            for each in sums
            if each.distinct is not None
        }
        self._touched: set[int] = set()
        self._evicted_before: int | None = None

    def applied(self, rows: InputRows) -> InputRows:
        """The rows that belong to windows: those of the stage's inputs that pass its filters."""
        return self._steps.applied(rows) if rows.kind in self.kinds else rows.take(slice(0, 0))

    def key_codes(self, rows: InputRows) -> Ints:
        """Codes of the keys of rows."""
        return self.keys.of([rows.codes[name] for name in self._spec.keys])

    def starts(self, event_ms: int) -> list[int]:
        """Starts of the windows that contain an event time."""
        newest = event_ms // self.slide_ms * self.slide_ms
        return [*range(newest, newest - self.size_ms, -self.slide_ms)]

    def add(self, rows: InputRows) -> None:
        """Store input rows (`applied`) in their windows. Must be called in order of
        LogAppendTime. Raises TooMuchStateError."""
        key = self.key_codes(rows)
        unit = self._units.of([rows.codes[n] for n in (*self._spec.keys, *self._spec.once_per)])
        every = np.arange(len(rows))
        for number, stretch in by_value(rows.event_ms // self._every_ms):
            starts = [each for each in self.starts(number * self._every_ms) if self._is_kept(each)]
            if not starts:
                continue
            picked = every[stretch]
            if self._spec.once_per:
                picked = picked[self._are_first(number, rows.kind, unit[picked])]
            for start in starts:
                self._add_window(start, rows, key, picked)

    def _are_first(self, number: int, kind: int, unit: Ints) -> Bools:
        counted, at = self._counted.add(number, unit, len(self._units))
        return _mark_first(counted[str(kind)], at)

    def _add_window(self, start: int, rows: InputRows, key: Ints, picked: Ints) -> None:
        if not len(picked):
            return
        cells, at = self.windows.add(start, key[picked], len(self.keys))
        self._touched.add(start)
        newest_ms = int(rows.appended_ms[picked].max())
        self.newest_ms[start] = max(self.newest_ms.get(start, NEVER), newest_ms)
        np.maximum.at(cells["limit"], at, rows.numbers[self.limit_column][picked])
        for each in self.sums:
            mine = picked if each.distinct is None else self._new_values(start, each, rows, picked)
            each.add(cells, at if mine is picked else cells.positions(key[mine]), rows, mine)
        np.add.at(cells[f"records of {rows.kind}"], at, 1)
        np.add.at(cells["appended_sum"], at, rows.appended_ms[picked] - self.base_ms)
        np.maximum.at(cells["latest_ms"], at, rows.appended_ms[picked])
        np.maximum.at(cells["scheduled_us"], at, rows.scheduled_us[picked])
        add_offsets(cells, at, rows, picked)

    def _new_values(
        self, start: int, aggregate_state: AggregateState, rows: InputRows, picked: Ints
    ) -> Ints:
        """Those of the picked rows whose value occurs for the first time in a window."""
        if rows.kind not in aggregate_state.sources:
            return picked
        assert aggregate_state.distinct is not None
        keys = [rows.codes[name] for name in self._spec.keys]
        code = aggregate_state.distinct.of([*keys, rows.codes[aggregate_state.sources[rows.kind]]])
        values = self._distinct[aggregate_state.spec.column]
        seen, at = values.add(start, code[picked], len(aggregate_state.distinct))
        return picked[_mark_first(seen["seen"], at)]

    def complete(self, start: int, at: Ints) -> Bools:
        """Whether all records of all inputs are present, at these positions."""
        cells = self.windows[start]
        due = cells["limit"][at] * self.due
        whole: Bools = due > 0
        for kind in self.kinds:
            whole &= cells[f"records of {kind}"][at] == due
        return whole

    def has_all(self, start: int, at: Ints) -> Bools:
        """Whether there is at least one record of every input, at these positions."""
        cells = self.windows[start]
        counts = [cells[f"records of {kind}"][at] > 0 for kind in self.kinds]
        result: Bools = np.logical_and.reduce(counts)
        return result

    def take_touched(self) -> set[int]:
        """Windows to which records were added since the last call."""
        taken, self._touched = self._touched, set()
        return taken

    def evict(self, before: int) -> None:
        """Remove the windows that start before a time."""
        self._evicted_before = before
        for start in self.windows.evict(before):
            self.newest_ms.pop(start, None)
        self._counted.remove([each for each in self._counted if not self._is_needed(each)])
        for values in self._distinct.values():
            values.evict(before)

    def _is_kept(self, start: int) -> bool:
        return self._evicted_before is None or start >= self._evicted_before

    def _is_needed(self, number: int) -> bool:
        return any(map(self._is_kept, self.starts(number * self._every_ms)))

    def cells(self) -> int:
        """Cells in memory."""
        return self.windows.size + GROUP_CELLS * len(self.windows)


def _mark_first(seen: Bools, at: Ints) -> Bools:
    """Which positions occur for the first time. Marks them as seen."""
    new: Bools = first_of_each(at) & ~seen[at]
    seen[at[new]] = True
    return new


class _OverCountedWindows(KeyedOracle):
    """Addresses outputs of both stages by window start and keys."""

    state: WindowState

    @property
    def compared(self) -> list[str]:
        """Columns that outputs are compared by."""
        aggregates = [aggregate.column for aggregate in self.spec.aggregates]
        return [WINDOW_END, *aggregates, *(change.column for change in self.spec.changes)]

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
            offsets=offsets_at(cells, at, state.sources),
        )

    def content(self, group: int, at: Ints) -> dict[str, ExpectedColumn]:
        """The aggregates and the window's end."""
        cells = self.state.windows[group]
        ends = {WINDOW_END: ExpectedColumn(np.full(len(at), group + self.state.size_ms))}
        return ends | {each.spec.column: each.values(cells, at) for each in self.state.sums}


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
        self._sums = {each.spec.column: each for each in state.sums}
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
        whole = self.grows or all(part in self.state.windows for part in self.parts(group))
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
            offsets=self._offsets(parts, len(at)),
        )

    def _offsets(self, parts: "list[_Part]", count: int) -> Ints | None:
        sources = self.state.sources
        if not sources:
            return None
        result = np.full((sources, count), UNKNOWN, np.int64)
        for part in parts:
            mine = [part.of(offset_of(source), UNKNOWN) for source in range(sources)]
            np.maximum(result, np.stack(mine), out=result)
        return result

    def content(self, group: int, at: Ints) -> dict[str, ExpectedColumn]:
        """The changes and the window's end."""
        length_ms = self.state.size_ms * self._number
        result = {WINDOW_END: ExpectedColumn(np.full(len(at), group + length_ms))}
        parts = self._parts(group, at)
        for change in self.spec.changes:
            new, old = (
                part.values(self._sums[change.of]) for part in (parts[-1], parts[-1 - change.back])
            )
            result[change.column] = changed(new, old)
        return result

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
        result = np.full(len(self.has), otherwise, np.int64)
        if self.cells is not None:
            result[self.has] = self.cells[name][self.at]
        return result

    def values(self, aggregate_state: AggregateState) -> ExpectedColumn:
        """An aggregate; NaN for keys without records."""
        result, scale = np.full((2, len(self.has)), np.nan)
        if self.cells is not None:
            values = aggregate_state.values(self.cells, self.at)
            result[self.has] = values.values
            scale[self.has] = 0 if values.scale is None else values.scale
        return ExpectedColumn(result, scale)


def changed(new: ExpectedColumn, old: ExpectedColumn) -> ExpectedColumn:
    """(new - old) / old; NaN if old is 0 or missing."""
    assert new.scale is not None
    assert old.scale is not None
    new_size: Floats = new.scale
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        change = np.where(old.values == 0, np.nan, (new.values - old.values) / old.values)
        carried = (new_size + np.abs(new.values / old.values) * old.scale) / np.abs(old.values)
    return ExpectedColumn(change, np.maximum(np.maximum(1.0, np.abs(change)), carried))


def _in_all(counts: list[Ints]) -> Ints:
    """Total number of records, at least one."""
    total: Ints = np.maximum(np.add.reduce(counts), 1).astype(np.int64)
    return total
