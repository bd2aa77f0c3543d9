"""Windows that grow in the order of LogAppendTime, where partial windows are published: an output
is judged by what was appended up to its own millisecond. What comes later is not in it, also when
both are read at once.

    in_order = InOrder(inputs, ledgers)
    in_order.add(rows)                     # in topic order
    in_order.advance(input_frontier_ms)
"""

from collections import defaultdict

import numpy as np

from services.evaluator.columns import UNKNOWN, Ints, by_value
from services.evaluator.inputs import InputRows, Inputs
from services.evaluator.ledger import Ledger

_EVER = np.iinfo(np.int64).max


class InOrder:
    """Keeps input rows until the outputs before them are judged by `ledgers`, whose stages are over
    windows. Bounded by what is read between two frontiers."""

    def __init__(self, inputs: Inputs, ledgers: list[Ledger]) -> None:
        self._inputs = inputs
        self._ledgers = ledgers
        self._rows: list[InputRows] = []

    def __len__(self) -> int:
        return sum(len(rows) for rows in self._rows)

    def add(self, rows: InputRows) -> None:
        """Let rows wait until `advance`."""
        self._rows.append(rows)

    def advance(self, frontier_ms: int) -> None:
        """Add to the windows what was appended before the frontier; all of it is known. Outputs
        that are older than an input of their window are judged before that is added."""
        for time_ms in self._cuts(frontier_ms):
            self._add_before(time_ms + 1)
            for ledger in self._ledgers:
                ledger.release(self._inputs, time_ms + 1)
        self._add_before(frontier_ms)

    def _cuts(self, frontier_ms: int) -> list[int]:
        """When to judge before anything is added: see `_cuts_of_window`. None in most runs."""
        came = self._came(frontier_ms)
        cuts: set[int] = set()
        for ledger in self._ledgers:
            for group, site, output_ms in ledger.waiting_places():
                parts = [came[part] for part in ledger.stage.parts(group) if part in came]
                if parts:
                    input_site = np.concatenate([one for one, _ in parts])
                    input_ms = np.concatenate([times for _, times in parts])
                    cuts.update(_cuts_of_window(site, output_ms, input_site, input_ms))
        return sorted(cuts)

    def _came(self, frontier_ms: int) -> dict[int, tuple[Ints, Ints]]:
        """Sites and LogAppendTimes of the rows before the frontier, by begin of their tumbling
        window."""
        found: dict[int, list[tuple[Ints, Ints]]] = defaultdict(list)
        window_ms = self._inputs.window_ms
        for rows in self._rows:
            for number, stretch in by_value(rows.observed_ms // window_ms):
                site, times = rows.site[stretch], rows.appended_ms[stretch]
                before = times < frontier_ms
                found[number * window_ms].append((site[before], times[before]))
        return {
            start: (
                np.concatenate([site for site, _ in parts]),
                np.concatenate([times for _, times in parts]),
            )
            for start, parts in found.items()
        }

    def _add_before(self, time_ms: int) -> None:
        left = []
        for rows in self._rows:
            early = rows.appended_ms < time_ms
            if early.all():
                self._inputs.add_windows(rows)
                continue
            self._inputs.add_windows(rows.take(early))
            left.append(rows.take(~early))
        self._rows = left


def _cuts_of_window(site: Ints, output_ms: Ints, input_site: Ints, input_ms: Ints) -> list[int]:
    """For every input with an older output of its site, the time of the newest such output, given
    site codes and LogAppendTimes of all outputs and inputs of one window. Newest of any site that
    has such an input, so that there are few."""
    known = site != UNKNOWN
    if not known.any() or not len(input_site):
        return []
    first_ms = np.full(max(site.max(), input_site.max()) + 1, _EVER)
    np.minimum.at(first_ms, site[known], output_ms[known])
    late = input_ms > first_ms[input_site]
    if not late.any():
        return []
    ordered = np.sort(output_ms[np.isin(site, input_site[late])])
    cuts: list[int] = ordered[np.searchsorted(ordered, input_ms[late]) - 1].tolist()
    return cuts
