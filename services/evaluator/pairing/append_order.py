"""Adds inputs to counted windows in order of LogAppendTime. An output is therefore judged against
the inputs appended up to and including its own millisecond, regardless of batch sizes.

    append_order = AppendOrder(ledgers)
    append_order.add(rows)                 # in topic order
    for time_ms in append_order.steps(frontier_ms):
        ...                                # judge the outputs appended before time_ms
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from services.evaluator.columnar.column_mapping import InputRows
from services.evaluator.columnar.columns import UNKNOWN, Bools, Ints
from services.evaluator.expected.counted_windows import WindowState
from services.evaluator.pairing.ledger import Ledger
from services.runtime.counting import by_value

_EVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Arrivals:
    """Inputs of one window that have not been added yet, one row each."""

    key: Ints
    appended_ms: Ints
    limit: Ints
    kind: Ints


class AppendOrder:
    """Queues input rows until the frontier has passed them. Bounded by what is read between two
    frontiers. ledgers: only those of counted windows are used."""

    def __init__(self, ledgers: list[Ledger]) -> None:
        by_state: dict[WindowState, list[Ledger]] = {}
        for ledger in ledgers:
            if isinstance(ledger.stage.state, WindowState):
                by_state.setdefault(ledger.stage.state, []).append(ledger)
        self._queues = [_Queue(state, mine) for state, mine in by_state.items()]

    def __len__(self) -> int:
        return sum(len(rows) for queue in self._queues for rows in queue.rows)

    def add(self, rows: InputRows) -> None:
        """Queue rows until the frontier passes them."""
        for queue in self._queues:
            queue.add(rows)

    def steps(self, frontier_ms: int) -> Iterator[int]:
        """Add the inputs appended before the frontier, all of which have been read. Yields, after
        each step, the time up to which outputs can be judged; the last is the frontier."""
        cuts = {cut for queue in self._queues for cut in queue.cuts(frontier_ms)}
        for time_ms in sorted(cuts):
            for queue in self._queues:
                queue.add_before(time_ms + 1)
            yield time_ms + 1
        for queue in self._queues:
            queue.add_before(frontier_ms)
        yield frontier_ms


class _Queue:
    """Queued rows of one state."""

    def __init__(self, state: WindowState, ledgers: list[Ledger]) -> None:
        self._state = state
        self._ledgers = ledgers
        self.rows: list[InputRows] = []

    def add(self, rows: InputRows) -> None:
        """Queue those of the rows that belong to its windows."""
        mine = self._state.applied(rows)
        if len(mine):
            self.rows.append(mine)

    def cuts(self, frontier_ms: int) -> set[int]:
        """Milliseconds after which outputs must be judged before more inputs are added. Empty in
        most runs."""
        cuts: set[int] = set()
        arrivals: dict[int, _Arrivals] | None = None
        for ledger in self._ledgers:
            for group, key, output_ms in ledger.open_outputs(frontier_ms):
                if arrivals is None:
                    arrivals = self._arrivals(frontier_ms)
                for part in ledger.stage.parts(group):
                    if part not in arrivals:
                        continue
                    if ledger.stage.grows:
                        cuts.update(_before_later_inputs(key, output_ms, arrivals[part]))
                    else:
                        cuts.update(self._disputed(part, key, output_ms, arrivals[part]))
        return {cut for cut in cuts if cut < frontier_ms}

    def _disputed(self, part: int, key: Ints, output_ms: Ints, came: _Arrivals) -> set[int]:
        """The milliseconds of inputs, and those before them, for keys whose complete window can
        become incomplete again: the inputs disagree on the number of records, or there are more
        records than that. All other complete windows stay complete."""
        late = _later_inputs(key, output_ms, came)
        if not late.any():
            return set()
        keys, number = np.unique(came.key, return_inverse=True)
        largest, smallest = np.zeros(len(keys), np.int64), np.full(len(keys), _EVER)
        cells = self._state.windows.get(part)
        at = np.full(len(keys), UNKNOWN) if cells is None else cells.positions(keys)
        known, at = at != UNKNOWN, at[at != UNKNOWN]
        if cells is not None:
            largest[known] = cells["limit"][at]
            smallest[known] = np.where(largest[known] > 0, largest[known], _EVER)
        np.maximum.at(largest, number, came.limit)
        np.minimum.at(smallest, number, came.limit)
        disputed = smallest < largest
        for kind in self._state.kinds:
            count = np.zeros(len(keys), np.int64)
            if cells is not None:
                count[known] = cells[f"records of {kind}"][at]
            np.add.at(count, number[came.kind == kind], 1)
            disputed |= count > largest * self._state.due
        times = set(came.appended_ms[late & disputed[number]].tolist())
        return times | {time_ms - 1 for time_ms in times}

    def _arrivals(self, frontier_ms: int) -> dict[int, _Arrivals]:
        """The rows before the frontier, by start of their windows."""
        result: dict[int, list[tuple[Ints, ...]]] = defaultdict(list)
        slide_ms = self._state.slide_ms
        for rows in self.rows:
            key, kind = self._state.key_codes(rows), np.full(len(rows), rows.kind)
            limit = rows.numbers[self._state.limit_column]
            for number, stretch in by_value(rows.event_ms // slide_ms):
                before = rows.appended_ms[stretch] < frontier_ms
                columns = (key, rows.appended_ms, limit, kind)
                mine = tuple(column[stretch][before] for column in columns)
                for start in self._state.starts(number * slide_ms):
                    result[start].append(mine)
        return {
            start: _Arrivals(*(np.concatenate(column) for column in zip(*parts, strict=True)))
            for start, parts in result.items()
        }

    def add_before(self, time_ms: int) -> None:
        """Add the rows appended before a time."""
        left = []
        for rows in sorted(self.rows, key=lambda rows: rows.kind):  # decides which is `first`
            early = rows.appended_ms < time_ms
            if early.all():
                self._add(rows)
                continue
            self._add(rows.take(early))
            left.append(rows.take(~early))
        self.rows = left

    def _add(self, rows: InputRows) -> None:
        slide_ms = self._state.slide_ms
        for ledger in self._ledgers:
            if ledger.has_missing:
                key = self._state.key_codes(rows)
                for number, stretch in by_value(rows.event_ms // slide_ms):
                    for start in self._state.starts(number * slide_ms):
                        ledger.reopen(start, key[stretch])
        self._state.add(rows)


def _later_inputs(key: Ints, output_ms: Ints, came: _Arrivals) -> Bools:
    """Which inputs have an older output of their key. key, output_ms: key codes and LogAppendTimes
    of all outputs of one window."""
    known = key != UNKNOWN
    if not known.any() or not len(came.key):
        return np.zeros(len(came.key), bool)
    numbers = _renumbered(np.concatenate([key[known], came.key]))
    of_outputs, of_inputs = np.split(numbers, [int(known.sum())])
    first_ms = np.full(numbers.max() + 1, _EVER)
    np.minimum.at(first_ms, of_outputs, output_ms[known])
    later: Bools = came.appended_ms > first_ms[of_inputs]
    return later


def _renumbered(keys: Ints) -> Ints:
    """Numbers for keys, equal for equal keys and at most eight times as large as their count."""
    low, high = int(keys.min()), int(keys.max())
    return keys - low if high - low <= 8 * len(keys) else np.unique(keys, return_inverse=True)[1]


def _before_later_inputs(key: Ints, output_ms: Ints, came: _Arrivals) -> list[int]:
    """For every input with an older output of its key, the time of the newest older output of any
    such key. Keys are not distinguished, which keeps the list short."""
    late = _later_inputs(key, output_ms, came)
    if not late.any():
        return []
    ordered = np.sort(output_ms[np.isin(key, came.key[late])])
    cuts: list[int] = ordered[np.searchsorted(ordered, came.appended_ms[late]) - 1].tolist()
    return cuts
