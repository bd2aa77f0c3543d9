"""Adds inputs to windows in the order of LogAppendTime, so that an output is judged against the
inputs appended up to and including its own millisecond, however much is read at once.

    append_order = AppendOrder(inputs, ledgers)
    append_order.add(rows)                 # in topic order
    for time_ms in append_order.steps(frontier_ms):
        ...                                # judge the outputs appended before time_ms
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from services.evaluator.columns import UNKNOWN, Bools, Ints, by_value
from services.evaluator.inputs import FLOW, REPORT_MS, InputRows, Inputs
from services.evaluator.ledger import Ledger

_EVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Arrivals:
    """Inputs of one tumbling window that are not added yet, one row each."""

    site: Ints
    appended_ms: Ints
    num_lanes: Ints
    kind: Ints


class AppendOrder:
    """Keeps input rows until the frontier has passed them. Bounded by what is read between two
    frontiers. ledgers: those of stages over windows."""

    def __init__(self, inputs: Inputs, ledgers: list[Ledger]) -> None:
        self._inputs = inputs
        self._ledgers = ledgers
        self._rows: list[InputRows] = []

    def __len__(self) -> int:
        return sum(len(rows) for rows in self._rows)

    def add(self, rows: InputRows) -> None:
        """Let rows wait until the frontier passes them."""
        self._rows.append(rows)

    def steps(self, frontier_ms: int) -> Iterator[int]:
        """Add the inputs that were appended before the frontier, all of which are known. After
        every step, yield the time up to which outputs can be judged; the last is the frontier."""
        for time_ms in self._cuts(frontier_ms):
            self._add_before(time_ms + 1)
            yield time_ms + 1
        self._add_before(frontier_ms)
        yield frontier_ms

    def _cuts(self, frontier_ms: int) -> list[int]:
        """Milliseconds after which outputs must be judged before more is added. None in most
        runs."""
        cuts: set[int] = set()
        arrivals: dict[int, _Arrivals] | None = None
        for ledger in self._ledgers:
            for group, site, output_ms in ledger.open_outputs(frontier_ms):
                if arrivals is None:
                    arrivals = self._arrivals(frontier_ms)
                for part in ledger.stage.parts(group):
                    if part not in arrivals:
                        continue
                    if ledger.stage.grows:
                        cuts.update(_before_later_inputs(site, output_ms, arrivals[part]))
                    else:
                        cuts.update(self._disputed(part, site, output_ms, arrivals[part]))
        return sorted(cut for cut in cuts if cut < frontier_ms)

    def _disputed(self, part: int, site: Ints, output_ms: Ints, came: _Arrivals) -> set[int]:
        """The milliseconds of inputs, and those before them, of sites where a complete window can
        become incomplete again: the inputs disagree on the number of lanes, or there are more of
        them than lanes. Elsewhere a complete window stays as it is."""
        late = _later_inputs(site, output_ms, came)
        if not late.any():
            return set()
        size = int(came.site.max()) + 1
        largest, smallest = np.zeros(size, np.int64), np.full(size, _EVER)
        count = {kind: np.zeros(size, np.int64) for kind in ("flows", "speeds")}
        cells = self._inputs.windows.get(part)
        if cells is not None:
            known = min(size, cells.size)
            largest[:known] = cells["num_lanes"][:known]
            smallest[:known] = np.where(largest[:known] > 0, largest[:known], _EVER)
            for kind, counted in count.items():
                counted[:known] = cells[kind][:known]
        np.maximum.at(largest, came.site, came.num_lanes)
        np.minimum.at(smallest, came.site, came.num_lanes)
        np.add.at(count["flows"], came.site[came.kind == FLOW], 1)
        np.add.at(count["speeds"], came.site[came.kind != FLOW], 1)
        due = largest * (self._inputs.window_ms // REPORT_MS)
        disputed = (smallest < largest) | (count["flows"] > due) | (count["speeds"] > due)
        times = set(came.appended_ms[late & disputed[came.site]].tolist())
        return times | {time_ms - 1 for time_ms in times}

    def _arrivals(self, frontier_ms: int) -> dict[int, _Arrivals]:
        """The rows before the frontier, by begin of their tumbling window."""
        found: dict[int, list[tuple[Ints, ...]]] = defaultdict(list)
        window_ms = self._inputs.window_ms
        for rows in self._rows:
            kind = np.full(len(rows), rows.kind)
            for number, stretch in by_value(rows.observed_ms // window_ms):
                before = rows.appended_ms[stretch] < frontier_ms
                columns = (rows.site, rows.appended_ms, rows.num_lanes, kind)
                found[number * window_ms].append(
                    tuple(column[stretch][before] for column in columns)
                )
        return {
            start: _Arrivals(*(np.concatenate(column) for column in zip(*parts, strict=True)))
            for start, parts in found.items()
        }

    def _add_before(self, time_ms: int) -> None:
        left = []
        for rows in self._rows:
            early = rows.appended_ms < time_ms
            if early.all():
                self._add(rows)
                continue
            self._add(rows.take(early))
            left.append(rows.take(~early))
        self._rows = left

    def _add(self, rows: InputRows) -> None:
        window_ms = self._inputs.window_ms
        for ledger in self._ledgers:
            if ledger.has_missing:
                for number, stretch in by_value(rows.observed_ms // window_ms):
                    ledger.reopen(self._inputs, number * window_ms, rows.site[stretch])
        self._inputs.add_windows(rows)


def _later_inputs(site: Ints, output_ms: Ints, came: _Arrivals) -> Bools:
    """Which inputs have an older output of their site, given site codes and LogAppendTimes of all
    outputs of one window."""
    known = site != UNKNOWN
    if not known.any() or not len(came.site):
        return np.zeros(len(came.site), bool)
    first_ms = np.full(max(site.max(), came.site.max()) + 1, _EVER)
    np.minimum.at(first_ms, site[known], output_ms[known])
    later: Bools = came.appended_ms > first_ms[came.site]
    return later


def _before_later_inputs(site: Ints, output_ms: Ints, came: _Arrivals) -> list[int]:
    """For every input with an older output of its site, the time of the newest such output. Newest
    of any site that has such an input, so that there are few."""
    late = _later_inputs(site, output_ms, came)
    if not late.any():
        return []
    ordered = np.sort(output_ms[np.isin(site, came.site[late])])
    cuts: list[int] = ordered[np.searchsorted(ordered, came.appended_ms[late]) - 1].tolist()
    return cuts
