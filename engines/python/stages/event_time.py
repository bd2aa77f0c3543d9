"""When inputs reached event times, in any partition.

Event time passes the end of a window at the LogAppendTime at which every input of the stage has a
record with an event time at or after it. Records appended up to GRACE_MS after that belong to the
window, later ones do not.
"""

from bisect import bisect_left, bisect_right

from stages.records import Row

GRACE_MS = 1_000
MOST_REACHED = 5_000  # seconds of event time for each run and input
Place = tuple[str, str]  # run and input


class EventTime:
    """When each input of each run first had a record of an event time or a later one, whatever the
    order in which its records are read. Windows start and end at whole seconds, so that is the
    resolution. Can be pickled."""

    def __init__(self) -> None:
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

    def passed_ms(self, run_id: str, inputs: list[str], event_ms: int) -> int | None:
        """The LogAppendTime at which every input had reached an event time; None if not yet."""
        latest_ms = 0
        for name in inputs:
            events, appends = self._reached.get((run_id, name), ([], []))
            after = bisect_left(events, event_ms)
            if after == len(events):
                return None
            latest_ms = max(latest_ms, appends[after])
        return latest_ms

    def is_late(self, row: Row, inputs: list[str], end_ms: int) -> bool:
        """Whether a row was appended too late for a window with this end."""
        passed_ms = self.passed_ms(row.fields["run_id"], inputs, end_ms)
        return passed_ms is not None and row.appended_ms > passed_ms + GRACE_MS
