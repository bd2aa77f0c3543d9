"""When inputs reached event times, in any partition, and windows got their records.

A window is closed at the LogAppendTime at which every input of the stage has a record with an event
time at or after its end, and at the latest one deadline after the newest of its records, over all
keys. Records appended up to GRACE_MS after that belong to the window, later ones do not.
"""

import math
from bisect import bisect_left, bisect_right

from stages.records import Row

GRACE_MS = 1_000
MOST_REACHED = 5_000  # seconds of event time for each run and input
MOST_WINDOWS = 10_000
Place = tuple[str, str]  # run and input
Window = tuple[str, str, int]  # stage, run and start


class EventTime:
    """When each input of each run first had a record of an event time or a later one, whatever the
    order in which its records are read. Windows start and end at whole seconds, so that is the
    resolution. Also when open windows got their newest record. Can be pickled.

    deadline_ms: of the run.
    """

    def __init__(self, deadline_ms: int) -> None:
        self._deadline_ms = deadline_ms
        self._newest_ms: dict[Window, int] = {}
        # Event times and when they were reached; both ascend.
        self._reached: dict[Place, tuple[list[int], list[int]]] = {}

    def seen(self, row: Row) -> None:
        """Note an input record, even if no stage uses it."""
        event_ms = row.event_ms // 1000 * 1000
        self._reach((row.fields["run_id"], row.source), event_ms, row.appended_ms)

    def _reach(self, place: Place, event_ms: int, appended_ms: int) -> None:
        events, appends = self._reached.setdefault(place, ([], []))
        after = bisect_left(events, event_ms)
        if after < len(events) and appends[after] <= appended_ms:
            return
        # Earlier event times that were not reached earlier are redundant.
        replaced = slice(bisect_left(appends, appended_ms), bisect_right(events, event_ms))
        events[replaced], appends[replaced] = [event_ms], [appended_ms]
        if len(events) > 2 * MOST_REACHED:
            del events[:-MOST_REACHED], appends[:-MOST_REACHED]

    def merge(self, other: "EventTime") -> None:
        """Note all that another has noted."""
        for place, times in other._reached.items():
            for event_ms, appended_ms in zip(*times, strict=True):
                self._reach(place, event_ms, appended_ms)
        for window, appended_ms in other._newest_ms.items():
            self.used(window, appended_ms)

    def used(self, window: Window, appended_ms: int) -> None:
        """Note that a record belongs to a window."""
        self._newest_ms[window] = max(appended_ms, self._newest_ms.get(window, 0))
        if len(self._newest_ms) > MOST_WINDOWS:
            del self._newest_ms[next(iter(self._newest_ms))]

    def forget(self, window: Window) -> None:
        """Forget a window that event time has passed."""
        self._newest_ms.pop(window, None)

    def idle_ms(self, window: Window, appended_ms: int) -> int:
        """When a window is closed if it gets no more records before. appended_ms: of a record in
        it."""
        return self._newest_ms.get(window, appended_ms) + self._deadline_ms

    def passed_ms(self, run_id: str, inputs: list[str], event_ms: int) -> float:
        """The LogAppendTime at which every input had reached an event time; infinite if not yet."""
        latest_ms = 0
        for name in inputs:
            events, appends = self._reached.get((run_id, name), ([], []))
            after = bisect_left(events, event_ms)
            if after == len(events):
                return math.inf
            latest_ms = max(latest_ms, appends[after])
        return latest_ms

    def is_late(self, row: Row, inputs: list[str], end_ms: int) -> bool:
        """Whether a row was appended too late for a window with this end."""
        passed_ms = self.passed_ms(row.fields["run_id"], inputs, end_ms)
        return row.appended_ms > passed_ms + GRACE_MS
