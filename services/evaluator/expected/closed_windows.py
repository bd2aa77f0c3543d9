"""The oracle of stages over windows that are due when event time has passed their end.

A window closes at the LogAppendTime at which every input of the stage has a record with an event
time at or after the window's end, in any partition. It closes at the latest one deadline after one
of its own records, if no other of them was appended within that deadline. Records appended up to
GRACE_MS after closing still belong to the window; later ones do not.

An output is addressed by the start of its window and its position in the window's expected outputs.
These are computed once, when the window closes (`window_recipe.py`). Until then its outputs wait.
"""

from collections import defaultdict
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from schemas.domain import RUN_ID, WINDOW_END, WINDOW_START, StageSpec, Window
from services.evaluator.columnar.column_mapping import ExpectedColumn, InputRows, RowSteps
from services.evaluator.columnar.columns import UNKNOWN, Bools, Ints
from services.evaluator.columnar.decode import Decoded
from services.evaluator.columnar.outputs import Context, OutputColumns, Outputs
from services.evaluator.expected.stages import GROUP_CELLS, Expected, Oracle, kinds_of
from services.evaluator.expected.window_recipe import Recipe, WindowResults, joined_rows
from services.runtime.counting import by_value

GRACE_MS = 1_000


@dataclass(frozen=True)
class Span:
    """Size and slide of windows, in milliseconds of event time."""

    size_ms: int
    slide_ms: int

    @classmethod
    def of(cls, window: Window) -> "Span":
        """The span of a stage's window."""
        return cls(1000 * window.size_s, 1000 * window.slide_s)

    def starts(self, event_ms: int) -> range:
        """Starts of the windows that contain an event time, newest first."""
        newest = event_ms // self.slide_ms * self.slide_ms
        return range(newest, newest - self.size_ms, -self.slide_ms)


class Horizon:
    """When each input first had a record of an event time or a later one."""

    def __init__(self, kinds: list[int], step_ms: int) -> None:
        self._step_ms = step_ms
        self._first_ms: dict[int, dict[int, int]] = {kind: {} for kind in kinds}

    def add(self, rows: InputRows) -> None:
        """Add records of one input."""
        first_ms = self._first_ms[rows.kind]
        for number, stretch in by_value(rows.event_ms // self._step_ms):
            at_ms = int(rows.appended_ms[stretch].min())
            first_ms[number] = min(first_ms.get(number, at_ms), at_ms)

    def passed_ms(self, event_ms: int) -> int | None:
        """LogAppendTime at which every input had a record of this event time (a multiple of the
        step) or a later one; None if an input has none yet."""
        latest = None
        for first_ms in self._first_ms.values():
            at_ms = [ms for number, ms in first_ms.items() if number * self._step_ms >= event_ms]
            if not at_ms:
                return None
            latest = max(latest or 0, min(at_ms))
        return latest

    def prune(self) -> None:
        """Remove redundant entries: those with a later event time appended no later."""
        for first_ms in self._first_ms.values():
            earliest = None
            for number in sorted(first_ms, reverse=True):
                if earliest is not None and first_ms[number] >= earliest:
                    del first_ms[number]
                else:
                    earliest = first_ms[number]

    def evict(self, before: int) -> None:
        """Remove event times at which no remaining window ends."""
        for first_ms in self._first_ms.values():
            for number in [
                first_m for first_m in first_ms if (first_m + 1) * self._step_ms <= before
            ]:
                del first_ms[number]


class ClosedState:
    """Input rows of open windows, and expected outputs of closed ones.

    recipe: computes the outputs. steps: filters and lookups before it. Bounded by `evict`: rows are
    kept until all their windows are closed.
    """

    def __init__(self, context: Context, recipe: Recipe, steps: RowSteps, deadline_ms: int) -> None:
        assert recipe.last.window is not None
        assert recipe.core.window is not None
        self.base_ms = context.base_ms
        self.span = Span.of(recipe.last.window)
        self._inner = Span.of(recipe.core.window) if recipe.core is not recipe.last else None
        self._recipe = recipe
        self._steps = steps
        self._deadline_ms = deadline_ms
        self._kinds = kinds_of(context.domain, recipe.last)
        spans = [self.span, *([self._inner] if self._inner else [])]
        self._pane_ms = gcd(*(ms for span in spans for ms in (span.size_ms, span.slide_ms)))
        self._horizon = Horizon(self._kinds, self._pane_ms)
        self._panes: dict[int, list[InputRows]] = defaultdict(list)
        self._arrived = 0
        self._open: set[int] = set()
        self.closed: dict[int, WindowResults] = {}
        self.newest_ms: dict[int, int] = {}
        self._touched: set[int] = set()
        self._evicted_before: int | None = None

    def add(self, rows: InputRows) -> None:
        """Store rows of an input until their windows are closed."""
        if rows.kind not in self._kinds:
            return
        self._horizon.add(rows)
        rows = self._recipe.narrowed(self._steps.applied(rows), self._arrived)
        self._arrived += len(rows)
        for number, stretch in by_value(rows.event_ms // self._pane_ms):
            pane = number * self._pane_ms
            windows = [window for window in self._windows_of(pane) if not self._is_closed(window)]
            if windows:
                self._panes[pane].append(rows.take(stretch))
                self._open.update(windows)

    def is_open(self, window: int) -> bool:
        """Whether a window has rows and is not closed."""
        return window in self._open

    def may_open(self, window: int, frontier_ms: int) -> bool:
        """Whether a window without rows may still get some that count, given that everything
        appended before the frontier has been added."""
        if self._is_closed(window):
            return False
        passed_ms = self._horizon.passed_ms(window + self.span.size_ms)
        return passed_ms is None or passed_ms + GRACE_MS >= frontier_ms

    def open_between(self, from_us: int, until_us: int) -> int:
        """Number of open windows with rows scheduled in a period."""
        result = 0
        for window in self._open:
            parts = [part for pane in self._panes_of(window) for part in self._panes.get(pane, [])]
            within = ((p.scheduled_us >= from_us) & (p.scheduled_us < until_us) for p in parts)
            result += any(bool(each.any()) for each in within)
        return result

    def close(self, frontier_ms: int) -> None:
        """Close the windows whose contents are final, given that everything appended before the
        frontier has been added."""
        self._horizon.prune()
        closed = False
        for window in sorted(self._open):
            end_ms = window + self.span.size_ms
            closed_ms = self._closed_ms(end_ms, self._panes_of(window), frontier_ms)
            if closed_ms is None or closed_ms + GRACE_MS >= frontier_ms:
                continue
            results = self._results(window, closed_ms, frontier_ms)
            self.closed[window] = results
            self.newest_ms[window] = closed_ms + GRACE_MS
            self._touched.add(window)
            self._open.discard(window)
            closed = True
        if closed:
            for pane in [p for p in self._panes if all(map(self._is_closed, self._windows_of(p)))]:
                del self._panes[pane]

    def take_touched(self) -> set[int]:
        """Windows closed since the last call."""
        taken, self._touched = self._touched, set()
        return taken

    def evict(self, before: int) -> None:
        """Remove the windows that start before a time."""
        self._evicted_before = before
        for window in [window for window in self.closed if window < before]:
            del self.closed[window], self.newest_ms[window]
        self._horizon.evict(before)

    def cells(self) -> int:
        """Rows and expected outputs in memory."""
        rows = sum(len(part) for parts in self._panes.values() for part in parts)
        outputs = sum(len(results) for results in self.closed.values())
        return rows + outputs + GROUP_CELLS * (len(self.closed) + len(self._panes))

    def _is_closed(self, window: int) -> bool:
        before = self._evicted_before
        return window in self.closed or (before is not None and window < before)

    def _windows_of(self, pane: int) -> list[int]:
        """Windows that contain the rows of a pane."""
        if self._inner is None:
            return [*self.span.starts(pane)]
        ends = [start + self._inner.size_ms for start in self._inner.starts(pane)]
        return [*dict.fromkeys(each for end in ends for each in self.span.starts(end - 1))]

    def _inner_windows(self, window: int) -> range:
        """Windows of the stage that is read whose outputs belong to a window. The event time of an
        output is its window's last millisecond."""
        assert self._inner is not None
        size_ms, slide_ms = self._inner.size_ms, self._inner.slide_ms
        first = (window - size_ms) // slide_ms * slide_ms + slide_ms
        return range(first, window + self.span.size_ms - size_ms + 1, slide_ms)

    def _panes_of(self, window: int) -> range:
        """Panes whose rows belong to a window."""
        first, end = window, window + self.span.size_ms
        if self._inner is not None:
            inner = self._inner_windows(window)
            first, end = inner[0], inner[-1] + self._inner.size_ms
        return range(first, end, self._pane_ms)

    def _closed_ms(self, end_ms: int, panes: range, frontier_ms: int) -> int | None:
        """When a window with this end and these panes closed; None if that does not follow from
        what was appended before the frontier."""
        passed_ms = self._horizon.passed_ms(end_ms)
        known = [] if passed_ms is None or passed_ms >= frontier_ms else [passed_ms]
        parts = [part.appended_ms for pane in panes for part in self._panes.get(pane, [])]
        idle_ms = self._idle_ms(parts, frontier_ms)
        known += [] if idle_ms is None else [idle_ms]
        return min(known, default=None)

    def _idle_ms(self, parts: list[Ints], frontier_ms: int) -> int | None:
        """One deadline after the first row that no other row follows within the deadline."""
        parts = [part for part in parts if len(part)]
        if not parts:
            return None
        low_ms, high_ms = min(int(p.min()) for p in parts), max(int(p.max()) for p in parts)
        if high_ms - low_ms <= self._deadline_ms and high_ms + self._deadline_ms >= frontier_ms:
            return None
        times = np.unique(np.concatenate(parts))
        times = times[times < frontier_ms]
        if not len(times):
            return None
        gaps = np.flatnonzero(np.diff(times) > self._deadline_ms)
        last_ms = int(times[gaps[0]] if len(gaps) else times[-1])
        idle_ms = last_ms + self._deadline_ms
        return idle_ms if idle_ms < frontier_ms else None

    def _results(self, window: int, closed_ms: int, frontier_ms: int) -> WindowResults:
        """Expected outputs of a window."""
        parts = [part for pane in self._panes_of(window) for part in self._panes.get(pane, [])]
        rows = {
            kind: joined_rows([part for part in parts if part.kind == kind], closed_ms + GRACE_MS)
            for kind in self._kinds
        }
        if self._inner is None:
            return self._recipe.results(rows, closed_ms)
        masks: dict[int, dict[int, Bools]] = {}
        for start in self._inner_windows(window):
            end_ms = start + self._inner.size_ms
            panes = range(start, end_ms, self._pane_ms)
            inner_ms = self._closed_ms(end_ms, panes, frontier_ms)
            limit_ms = min(closed_ms, inner_ms if inner_ms is not None else closed_ms) + GRACE_MS
            masks[start] = {
                kind: (each.event_ms >= start)
                & (each.event_ms < end_ms)
                & (each.appended_ms <= limit_ms)
                for kind, each in rows.items()
                if each is not None
            }
        return self._recipe.results_of_windows(rows, masks, closed_ms)


class ClosedWindows(Oracle):
    """The oracle of a stage over windows closed by event time."""

    state: ClosedState

    def __init__(
        self, context: Context, spec: StageSpec, state: ClosedState, recipe: Recipe
    ) -> None:
        self.spec = spec
        self.state = state
        self.columns = OutputColumns(context, spec)
        self._identity = recipe.identity
        computed = recipe.columns_of(self.columns.names())
        self._compared = [name for name in computed if name not in self._identity]
        # What a sample shows of an output's address beside its window.
        self._run = {RUN_ID: context.run_id} if spec.key == RUN_ID else {}
        self._named = [
            name for name in dict.fromkeys((spec.key, *self._identity)) if name not in self._run
        ]

    def outputs(self, decoded: Decoded, appended_ms: Ints, digest: Ints) -> Outputs:  # noqa: ARG002
        """Addresses and compared columns of decoded output records."""
        content = self.columns.content(decoded, [*self._identity, *self._compared])
        content[WINDOW_END] = decoded.ints(WINDOW_END)
        nowhere = np.full(len(decoded), UNKNOWN, np.int64)
        return Outputs(decoded.ints(WINDOW_START), nowhere, appended_ms, content)

    def located(self, rows: Outputs) -> Outputs:
        """The rows with their indices in the expected outputs, once their window is closed."""
        results = self.state.closed.get(int(rows.group[0]))
        if results is None:
            return rows
        identity = [rows.content[name] for name in self._identity]
        return rows.at(results.places(identity, len(rows)))

    def is_open(self, group: int) -> bool:
        """Whether a window has rows and is not closed."""
        return self.state.is_open(group)

    def may_open(self, group: int, frontier_ms: int) -> bool:
        """Whether a window without rows may still get some that count."""
        return self.state.may_open(group, frontier_ms)

    def size(self, group: int) -> int:
        """Number of expected outputs of a closed window."""
        results = self.state.closed.get(group)
        return 0 if results is None else len(results)

    def expected(self, group: int, at: Ints) -> Expected:
        """Expected outputs at some indices."""
        results = self.state.closed[group]
        return Expected(
            np.ones(len(at), bool),
            results.latest_ms[at],
            results.inputs[at],
            results.appended_sum[at],
            results.scheduled_us[at],
            self.state.base_ms,
            np.full(len(at), results.closed_ms),
            None if results.window_us is None else results.window_us[at],
            None if results.offsets is None else results.offsets[:, at],
        )

    def content(self, group: int, at: Ints) -> dict[str, ExpectedColumn]:
        """The compared columns and the window's end."""
        results = self.state.closed[group]
        result = {WINDOW_END: ExpectedColumn(np.full(len(at), group + self.state.span.size_ms))}
        for name in self._compared:
            values = results.columns[name]
            scale = None if values.scale is None else values.scale[at]
            result[name] = ExpectedColumn(values.values[at], scale)
        return result

    def copies(self, group: int, index: Ints) -> Ints | None:
        """How often each pair occurs, because its records may be repeated."""
        copies = self.state.closed[group].copies
        return None if copies is None else copies[index]

    def said(self, rows: Outputs, row: int) -> dict[str, Any]:
        """The compared columns of an output."""
        names = (WINDOW_END, *self._compared)
        return {name: self.columns.shown(name, rows.content[name][row]) for name in names}

    def address(self, group: int, index: int) -> dict[str, Any]:
        """The identity of an expected output in its window, its key and the window."""
        columns = self.state.closed[group].columns
        cells = {n: self.columns.shown(n, columns[n].values[index]) for n in self._named}
        return self._run | cells | {WINDOW_START: group}

    def address_of(self, rows: Outputs, row: int) -> dict[str, Any]:
        """The identity of an output in its window, its key and the window."""
        cells = {n: self.columns.shown(n, rows.content[n][row]) for n in self._named}
        return self._run | cells | {WINDOW_START: int(rows.group[row])}
