"""Windows closed by event time.

A window is closed at the LogAppendTime at which every input of the stage has a record with an event
time at or after its end. Records appended up to GRACE_MS after that belong to it, later ones do
not. Event time is tracked over all keys of a run, so the engine passes every input record to
`seen`.
"""

import bisect
from typing import Any

from stages.kinds import PUBLISHED, Aggregate, KeptOfKey, Spec
from stages.records import Row

GRACE_MS = 1_000
SILENT_MS = 10_000  # after the last record of a window that event time has not passed
LOOK_MS = 250  # below GRACE_MS, so that windows are not closed too late
MOST_PASSED = 5_000  # seconds of event time


class EventTime:
    """The event time that all inputs have reached, and when they did. Windows start and end at
    whole seconds, so that is the resolution. Can be pickled."""

    def __init__(self, inputs: list[str]) -> None:
        self.inputs = inputs
        self._newest_ms: dict[str, int] = {}
        self._passed: list[tuple[int, int]] = []

    def seen(self, row: Row) -> None:
        """Advance event time by an input record, even if a stage drops it."""
        if row.event_ms <= self._newest_ms.get(row.source, -1):
            return
        self._newest_ms[row.source] = row.event_ms
        if len(self._newest_ms) < len(self.inputs):
            return
        reached_ms = min(self._newest_ms.values()) // 1000 * 1000
        passed = self._passed
        if not passed or reached_ms > passed[-1][0]:
            before_ms = passed[-1][1] if passed else 0
            passed.append((reached_ms, max(before_ms, row.appended_ms)))
            if len(passed) > 2 * MOST_PASSED:
                del passed[:-MOST_PASSED]

    def passed_ms(self, event_ms: int) -> int | None:
        """The LogAppendTime at which every input had reached an event time; None if not yet."""
        place = bisect.bisect_left(self._passed, (event_ms, 0))
        return self._passed[place][1] if place < len(self._passed) else None


class Closed(Aggregate):
    """A window is due one second after event time has passed its end in every input.

    `due_ms` is when the engine should call `due` for a key: it depends on time only.
    times: event time by run; must be saved together with the state of keys.
    """

    empty = list

    def __init__(self, spec: Spec, inputs: list[Spec]) -> None:
        super().__init__(spec, inputs)
        self.times: dict[str, EventTime] = {}

    def seen(self, row: Row) -> None:
        """Call for every input record before it is added."""
        if row.source in self.inputs:
            self.time_of(row).seen(row)

    def time_of(self, row: Row) -> EventTime:
        """The event time of a row's run."""
        run_id = row.fields["run_id"]
        if run_id not in self.times:
            self.times[run_id] = EventTime(self.inputs)
        return self.times[run_id]

    def add(self, kept: KeptOfKey, row: Row) -> list[Row]:
        time = self.time_of(row)
        for start_ms, group in self.open_windows(kept, row):
            closing_ms = time.passed_ms(start_ms + self.size_ms)
            if closing_ms is None or row.appended_ms <= closing_ms + GRACE_MS:
                group.append(row)
                kept[start_ms] = group
        return []

    def due_ms(self, kept: KeptOfKey, now_ms: float) -> float | None:
        """When to check the state of a key next; None if no window is open."""
        dues = [min(self._due_ms(at, rows), now_ms + LOOK_MS) for at, rows in _open(kept)]
        return min(dues, default=None)

    def _due_ms(self, start_ms: int, rows: list[Row]) -> float:
        closing_ms = self.time_of(rows[0]).passed_ms(start_ms + self.size_ms)
        if closing_ms is not None:
            return closing_ms + GRACE_MS
        return max(row.appended_ms for row in rows) + SILENT_MS

    def due(self, kept: KeptOfKey, reached_ms: float) -> list[Row]:
        """The due windows of a key, oldest first. reached_ms: all records appended until then have
        been added."""
        found = []
        for start_ms, rows in sorted(_open(kept), key=lambda window: window[0]):
            if self._due_ms(start_ms, rows) < reached_ms:
                found += self.publish(kept, start_ms, rows)
                if self.time_of(rows[0]).passed_ms(start_ms + self.size_ms) is not None:
                    del kept[start_ms]  # later records are late, so no mark is needed
        return found


def _open(kept: KeptOfKey) -> list[tuple[int, Any]]:
    return [(at, rows) for at, rows in kept.items() if rows is not PUBLISHED]
