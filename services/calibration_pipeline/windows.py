"""Windowed stage kinds. Pure.

A counted window is due when all its records have arrived. A window is closed when event time has
passed its end in all inputs, and at the latest one deadline after the newest of its records, over
all keys. It is due one second later; records appended until then still belong to it.
"""

import heapq
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from schemas.domain import SEQUENCE, WINDOW_END, WINDOW_START, DomainSpec, StageSpec, Window
from services.calibration_pipeline.kinds import Fields, Newest, Row, is_used, keys_of, made_of

GRACE_MS = 1_000
# Records appended until a given time have been read this much later.
READ_MS = 40
MAX_HISTORY = 10_000
Address = tuple[object, ...]  # run, keys and start of a window


def windows_of(window: Window, event_ms: int) -> Iterator[tuple[int, int]]:
    """Start and end, epoch milliseconds, of the windows that contain an event time."""
    size_ms, slide_ms = 1000 * window.size_s, 1000 * window.slide_s
    start_ms = event_ms // slide_ms * slide_ms
    while start_ms > event_ms - size_ms:
        yield start_ms, start_ms + size_ms
        start_ms -= slide_ms


def bounds(start_ms: int, end_ms: int) -> Fields:
    """The columns that identify the window."""
    return {WINDOW_START: start_ms, WINDOW_END: end_ms}


class EventTime:
    """When each input of a stage first had a record of an event time or a later one, by run and
    whatever the order of reading. step_ms: all windows end at a multiple of it."""

    def __init__(self, inputs: tuple[str, ...], step_ms: int) -> None:
        self._inputs, self._step_ms = inputs, step_ms
        # By run and input: event times and LogAppendTimes, both increasing.
        self._reached: Newest[tuple[list[int], list[int]]] = Newest()

    def seen(self, row: Row) -> bool:
        """Note an input record; False if that changes nothing."""
        if row.input not in self._inputs:
            return False
        event_ms = row.event_ms // self._step_ms * self._step_ms
        events, appends = self._reached.group((row.run_id, row.input), lambda: ([], []))
        after = bisect_left(events, event_ms)
        if after < len(events) and appends[after] <= row.appended_ms:
            return False
        replaced = slice(bisect_left(appends, row.appended_ms), bisect_right(events, event_ms))
        events[replaced], appends[replaced] = [event_ms], [row.appended_ms]
        del events[:-MAX_HISTORY], appends[:-MAX_HISTORY]
        return True

    def closing_ms(self, run_id: object, end_ms: int) -> int | None:
        """When event time passed the end of a window in all inputs; None if it has not."""
        found = []
        for name in self._inputs:
            events, appends = self._reached.get((run_id, name), ([], []))
            place = bisect_left(events, end_ms)
            if place == len(events):
                return None
            found.append(appends[place])
        return max(found)

    def is_late(self, row: Row, end_ms: int) -> bool:
        """Whether a row was appended too late for a window with this end."""
        closing_ms = self.closing_ms(row.run_id, end_ms)
        return closing_ms is not None and row.appended_ms > closing_ms + GRACE_MS


class WindowJoin:
    """Joins each pair of records of two inputs with the same keys in one window, unless one of them
    is late."""

    def __init__(self, spec: StageSpec, domain: DomainSpec) -> None:
        assert spec.window is not None
        self._spec, self._window = spec, spec.window
        self._inputs = tuple(one.name for one in domain.inputs_of(spec.name))
        self._times = EventTime(self._inputs, 1000 * spec.window.slide_s)
        self._groups: Newest[list[Row]] = Newest()

    def add(self, row: Row) -> list[Row]:
        if not is_used(row, self._spec, self._inputs):
            return []
        keys = keys_of(row, self._spec)
        made: list[Row] = []
        for start_ms, end_ms in windows_of(self._window, row.event_ms):
            if self._times.is_late(row, end_ms):
                continue
            group = self._groups.group((row.run_id, *keys.values(), start_ms), list)
            made += (
                self._pair(row, other, keys, start_ms, end_ms)
                for other in group
                if other.input != row.input
            )
            group.append(row)
        return made

    def seen(self, row: Row) -> None:
        """Note that an input record was read, even if an earlier stage dropped it."""
        self._times.seen(row)

    def _pair(self, one: Row, other: Row, keys: Fields, start_ms: int, end_ms: int) -> Row:
        rows = sorted((one, other), key=lambda row: self._inputs.index(row.input))
        by_input = {row.input: row.fields for row in rows}
        columns = {
            name: by_input[source.split(".")[0]][source.split(".")[1]]
            for name, source in self._spec.columns.items()
        }
        address = (*(row.fields[SEQUENCE] for row in rows), start_ms)
        found = {**keys, **bounds(start_ms, end_ms), **columns}
        return made_of(rows, self._spec, found, end_ms - 1, address)


@dataclass
class _Group:
    keys: Fields
    start_ms: int
    end_ms: int
    rows: list[Row] = field(default_factory=list)
    counted: set[tuple[object, ...]] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    is_published: bool = False


class Aggregation:
    """Base of counted and closed windows: rows by keys and window."""

    def __init__(self, spec: StageSpec, domain: DomainSpec) -> None:
        assert spec.window is not None
        self._spec, self._window = spec, spec.window
        self._inputs = tuple(one.name for one in domain.inputs_of(spec.name))
        sources = [of.rpartition(".")[0] for one in spec.aggregates for of in one.of]
        self._needed = {source for source in sources if source}
        self._groups: Newest[_Group] = Newest()

    def _groups_of(self, row: Row) -> Iterator[tuple[Address, _Group]]:
        if not is_used(row, self._spec, self._inputs):
            return
        keys = keys_of(row, self._spec)
        for start_ms, end_ms in windows_of(self._window, row.event_ms):
            address = (row.run_id, *keys.values(), start_ms)
            yield (
                address,
                self._groups.group(
                    address,
                    lambda at=(start_ms, end_ms): _Group(keys, *at),  # type: ignore[misc]
                ),
            )

    def _publish(self, group: _Group) -> list[Row]:
        """The output of a window, once; none if one of its inputs has no record in it."""
        rows, group.rows, group.is_published = group.rows, [], True
        group.counted = set()
        if not rows or not self._needed <= {row.input for row in rows}:
            return []
        keys, at = group.keys, bounds(group.start_ms, group.end_ms)
        address = (*keys.values(), group.start_ms)
        return [made_of(rows, self._spec, {**keys, **at}, group.end_ms - 1, address)]


class Counted(Aggregation):
    """Windows that are due when all their records have arrived."""

    def add(self, row: Row) -> list[Row]:
        made: list[Row] = []
        for _address, group in self._groups_of(row):
            if not group.is_published and self._is_new(group, row):
                group.rows.append(row)
                group.counts[row.input] = group.counts.get(row.input, 0) + 1
                if self._is_complete(group):
                    made += self._publish(group)
        return made

    def _is_new(self, group: _Group, row: Row) -> bool:
        complete, once_per = self._spec.complete, self._spec.once_per
        assert complete is not None
        if not once_per:
            return True
        values = (row.fields[name] for name in once_per)
        counted = (row.input, *values, row.event_ms // (1000 * complete.every_s))
        if counted in group.counted:
            return False
        group.counted.add(counted)
        return True

    def _is_complete(self, group: _Group) -> bool:
        complete = self._spec.complete
        assert complete is not None
        most = max(row.fields[complete.column] for row in group.rows)
        due = most * (self._window.size_s // complete.every_s)
        return all(group.counts.get(name, 0) >= due for name in self._inputs)


class Closed(Aggregation):
    """Windows that are due after event time has passed their end."""

    def __init__(self, spec: StageSpec, domain: DomainSpec, deadline_ms: int) -> None:
        super().__init__(spec, domain)
        self._deadline_ms = deadline_ms
        # By run and start: when the newest record of a window was appended.
        self._newest_ms: dict[tuple[str, int], int] = {}
        self._times = EventTime(self._inputs, 1000 * self._window.slide_s)
        # By run: the end of each open window, and its address.
        self._open: Newest[list[tuple[int, int, Address]]] = Newest()
        self._count = itertools.count()
        # Times to check a window, whatever is due then.
        self._looks: list[tuple[int, int, Address]] = []

    def add(self, row: Row) -> list[Row]:
        for address, group in self._groups_of(row):
            if group.is_published or self._times.is_late(row, group.end_ms):
                continue
            self._use(row, group.start_ms)
            if not group.rows:
                found = self._open.group(row.run_id, list)
                heapq.heappush(found, (group.end_ms, next(self._count), address))
                self._look_at(row.appended_ms + self._deadline_ms + GRACE_MS, address)
                self._pass(row.run_id)
            group.rows.append(row)
        return []

    def _use(self, row: Row, start_ms: int) -> None:
        at = row.run_id, start_ms
        self._newest_ms[at] = max(row.appended_ms, self._newest_ms.get(at, 0))
        if len(self._newest_ms) > MAX_HISTORY:
            del self._newest_ms[next(iter(self._newest_ms))]

    def seen(self, row: Row) -> None:
        """Note that an input record was read, even if an earlier stage dropped it."""
        if self._times.seen(row):
            self._pass(row.run_id)

    def _pass(self, run_id: str) -> None:
        """Schedule windows that event time has passed, after the grace period."""
        found = self._open.get(run_id)
        while found:
            closing_ms = self._times.closing_ms(run_id, found[0][0])
            if closing_ms is None:
                return
            self._look_at(closing_ms + GRACE_MS, heapq.heappop(found)[2])

    def _look_at(self, at_ms: int, address: Address) -> None:
        heapq.heappush(self._looks, (at_ms, next(self._count), address))

    def closed(self, now_ms: float) -> list[Row]:
        """The outputs due by time alone. now_ms: epoch milliseconds."""
        made: list[Row] = []
        while self._looks and self._looks[0][0] + READ_MS <= now_ms:
            at_ms, _, address = heapq.heappop(self._looks)
            group = self._groups.get(address)
            if group is None or group.is_published:
                continue
            due_ms = self._due_ms(group)
            if due_ms > at_ms:
                self._look_at(due_ms, address)
            else:
                group.rows = [row for row in group.rows if row.appended_ms <= due_ms]
                made += (replace(row, due_ms=due_ms) for row in self._publish(group))
        return made

    def _due_ms(self, group: _Group) -> int:
        run_id, newest_ms = group.rows[-1].run_id, group.rows[-1].appended_ms
        idle_ms = self._newest_ms.get((run_id, group.start_ms), newest_ms) + self._deadline_ms
        passed_ms = self._times.closing_ms(run_id, group.end_ms)
        return (idle_ms if passed_ms is None else min(idle_ms, passed_ms)) + GRACE_MS
