"""Windows that grow in the order of LogAppendTime, where partial windows are published: an output
is judged by what was appended up to its own millisecond. What comes later is not in it, also when
both are read at once.

    in_order = InOrder(inputs, ledgers)
    in_order.add(rows)                     # in topic order
    in_order.advance(input_frontier_ms)
"""

from collections import defaultdict

import numpy as np

from services.evaluator.columns import Ints, by_value
from services.evaluator.inputs import InputRows, Inputs
from services.evaluator.ledger import Ledger


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
        """For every input of a window with an older output: the time of the newest such output."""
        came = self._times_by_window(frontier_ms)
        cuts: set[int] = set()
        for ledger in self._ledgers:
            for group, output_ms in ledger.waiting_times():
                parts = [came[part] for part in ledger.stage.parts(group) if part in came]
                if not parts or max(int(part.max()) for part in parts) <= output_ms.min():
                    continue
                ordered = np.sort(output_ms)
                older = np.searchsorted(ordered, np.concatenate(parts))
                cuts.update(ordered[older[older > 0] - 1].tolist())
        return sorted(cuts)

    def _times_by_window(self, frontier_ms: int) -> dict[int, Ints]:
        """LogAppendTimes of the rows before the frontier, by begin of their tumbling window."""
        found: dict[int, list[Ints]] = defaultdict(list)
        window_ms = self._inputs.window_ms
        for rows in self._rows:
            for number, stretch in by_value(rows.observed_ms // window_ms):
                times = rows.appended_ms[stretch]
                before = times[times < frontier_ms]
                if len(before):
                    found[number * window_ms].append(before)
        return {start: np.concatenate(parts) for start, parts in found.items()}

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
