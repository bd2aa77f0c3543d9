"""Windows closed by event time.

A window is closed when event time has passed its end, or after a deadline without a record of it
(event_time.py). It is due GRACE_MS later.
"""

from typing import Any

from stages.event_time import GRACE_MS, EventTime, Window
from stages.kinds import PUBLISHED, KeptOfKey, Keyed, Spec, windows_of
from stages.records import Row

LOOK_MS = 250  # below GRACE_MS, so that windows are not closed too late


class Closed(Keyed):
    """Aggregates a window one second after it is closed, at the same time for every key.

    `due_ms` is when the engine should call `due` for a key: it depends on time only. times: of the
    plan; must be saved together with the state of keys.
    """

    def __init__(self, spec: Spec, inputs: list[Spec], times: EventTime) -> None:
        super().__init__(spec, inputs)
        self.times = times
        sources = [of.rpartition(".")[0] for one in spec["aggregates"] for of in one["of"]]
        self._needed = {source for source in sources if source}

    def add(self, kept: KeptOfKey, row: Row) -> list[Row]:
        row = self.narrow(row)
        for start_ms in windows_of(self.spec["window"], row.event_ms):
            rows = kept.get(start_ms)
            if rows is PUBLISHED or self.times.is_late(row, self.inputs, start_ms + self.size_ms):
                continue
            self.times.used(self._window(start_ms, row), row.appended_ms)
            rows = rows or []
            rows.append(row)
            kept[start_ms] = rows
        return []

    def _window(self, start_ms: int, row: Row) -> Window:
        return self.spec["name"], row.fields["run_id"], start_ms

    def due_ms(self, kept: KeptOfKey, now_ms: float) -> float | None:
        """When to check the state of a key next; None if no window is open."""
        dues = [min(self._due_ms(at, rows[-1]), now_ms + LOOK_MS) for at, rows in _open(kept)]
        return min(dues, default=None)

    def _passed_ms(self, start_ms: int, row: Row) -> float:
        end_ms = start_ms + self.size_ms
        return self.times.passed_ms(row.fields["run_id"], self.inputs, end_ms)

    def _due_ms(self, start_ms: int, row: Row) -> float:
        idle_ms = self.times.idle_ms(self._window(start_ms, row), row.appended_ms)
        return min(idle_ms, self._passed_ms(start_ms, row)) + GRACE_MS

    def due(self, kept: KeptOfKey, reached_ms: float) -> list[Row]:
        """The due windows of a key, oldest first. reached_ms: all records appended until then have
        been added."""
        found = []
        for start_ms, rows in sorted(_open(kept), key=lambda window: window[0]):
            due_ms = self._due_ms(start_ms, rows[-1])
            if due_ms < reached_ms:
                kept[start_ms] = PUBLISHED
                in_time = [row for row in rows if row.appended_ms <= due_ms]
                if in_time and self._needed <= {row.source for row in in_time}:
                    found.append(self.of_window(in_time, start_ms, {})._replace(due_ms=due_ms))
                if self._passed_ms(start_ms, rows[-1]) + GRACE_MS < reached_ms:
                    del kept[start_ms]  # later records are late, so no mark is needed
                    self.times.forget(self._window(start_ms, rows[-1]))
        return found


def _open(kept: KeptOfKey) -> list[tuple[int, Any]]:
    return [(at, rows) for at, rows in kept.items() if rows is not PUBLISHED]
