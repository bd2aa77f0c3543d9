"""What the input topics say: the only source of what every stage must publish.

Three memories, all by arrival of input records:
- by sequence, in blocks: every record with its times and content (stages ingest and parse);
- by event time: flow and speed of every lane (stage join);
- by tumbling window: sums and times over the lanes of every site (stages tumbling, sliding, whose
  windows consist of tumbling ones).

What comes again counts once: the first record of a sequence; of a lane, kind and event time; for
windows of a lane, kind and second; each in topic order. Records of one measurement id are in one
partition of a topic, so which one is first does not depend on the order in which topics are read.
Where records disagree on the number of lanes the largest counts. What belongs to a group that was
evicted comes too late for anybody and is passed over.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.workload import REPORT_S
from services.evaluator.columns import (
    UNKNOWN,
    Bools,
    Codes,
    Columns,
    Floats,
    Ints,
    Pairs,
    by_value,
    first_of_each,
)

BLOCK = 1 << 16  # sequences in a block
GROUP_CELLS = 32  # what a group takes beside its cells, in cells
REPORT_MS = 1000 * REPORT_S
FLOW, SPEED = 0, 1
MEMORIES = ("sequences", "instants", "windows")
_NEVER = np.iinfo(np.int64).min

_BY_SEQUENCE: dict[str, tuple[Any, Any]] = {
    "seen": (np.uint8, 0),
    "kind": (np.int8, UNKNOWN),
    "appended_ms": (np.int64, 0),
    "scheduled_us": (np.int64, 0),
    "channel": (np.int32, UNKNOWN),
    "num_lanes": (np.int32, 0),
    "observed_ms": (np.int64, 0),
    "latitude": (np.float64, 0.0),
    "longitude": (np.float64, 0.0),
    "period_s": (np.int32, 0),
    "accuracy_percent": (np.int32, 0),
    "value": (np.float64, 0.0),
    "digest": (np.int64, 0),
}
_BY_LANE: dict[str, tuple[Any, Any]] = {
    "num_lanes": (np.int32, 0),
    "flow": (np.float64, np.nan),
    "speed": (np.float64, np.nan),
    "flow_appended_ms": (np.int64, _NEVER),
    "speed_appended_ms": (np.int64, _NEVER),
    "scheduled_us": (np.int64, _NEVER),
}
_BY_SITE: dict[str, tuple[Any, Any]] = {
    "num_lanes": (np.int32, 0),
    "flow_sum": (np.float64, 0.0),
    "flows": (np.int32, 0),
    "lanes": (np.int32, 0),
    "speed_sum": (np.float64, 0.0),
    "speed_size": (np.float64, 0.0),
    "speeds": (np.int32, 0),
    "appended_sum": (np.int64, 0),  # of milliseconds after base_ms
    "latest_ms": (np.int64, _NEVER),
    "scheduled_us": (np.int64, _NEVER),
}

_REPORTED: dict[str, tuple[Any, Any]] = {"flow": (np.bool_, False), "speed": (np.bool_, False)}


@dataclass(frozen=True)
class InputRows:
    """Input records of one kind, one row each, in topic order.

    kind: FLOW or SPEED; site, lane: codes; digest: hash of the whole encoded value; times in the
    unit of their names; appended_ms is the broker's LogAppendTime.
    """

    kind: int
    appended_ms: Ints
    scheduled_us: Ints
    sequence: Ints
    site: Ints
    lane: Ints
    num_lanes: Ints
    observed_ms: Ints
    latitude: Floats
    longitude: Floats
    period_s: Ints
    accuracy_percent: Ints
    value: Floats
    digest: Ints

    def __len__(self) -> int:
        return len(self.sequence)

    def take(self, rows: Bools) -> "InputRows":
        """The given rows."""
        columns = [one.name for one in fields(self) if one.name != "kind"]
        return InputRows(self.kind, *(getattr(self, name)[rows] for name in columns))


class Inputs:
    """The memory of one run's inputs. Bounded by `evict`; see `rows` for its size.

    window_ms: length of a tumbling window, milliseconds of event time. base_ms: a time near the
    inputs' (epoch ms), from which times are added up: since 1970, five million of them would not
    fit in 64 bits.
    """

    def __init__(
        self,
        memories: Iterable[str] = MEMORIES,
        window_ms: int = REPORT_MS,
        *,
        base_ms: int = 0,
    ) -> None:
        self.window_ms = window_ms
        self.base_ms = base_ms
        self._memories = frozenset(memories)
        self.touched: dict[str, set[int]] = {memory: set() for memory in MEMORIES}
        self.sites = Codes()
        self.lanes = Codes()
        self.channels = Pairs()
        self.sequences: dict[int, Columns] = {}
        self.instants: dict[int, Columns] = {}
        self.windows: dict[int, Columns] = {}
        self._reported: dict[int, Columns] = {}  # by second: which lanes, of each kind
        self._lanes_seen: dict[int, Columns] = {}  # by window: which lanes, where it is longer
        self._evicted_before: dict[str, int] = {}
        self.newest_ms: dict[str, dict[int, int]] = {"sequences": {}, "instants": {}, "windows": {}}

    def channel(self, site: Ints, lane: Ints) -> Ints:
        """Codes of (site, lane) pairs, given their codes."""
        return self.channels.of(site, lane)

    def site_name(self, site: int) -> str | None:
        """The measurement id that has a code."""
        return None if site == UNKNOWN else self.sites.values[site]

    def channel_names(self, channel: int) -> dict[str, Any]:
        """measurement_id and lane of a channel's code."""
        if channel == UNKNOWN:
            return {"measurement_id": None, "lane": None}
        site, lane = self.channels.pair(channel)
        return {"measurement_id": self.sites.values[site], "lane": self.lanes.values[lane]}

    def add(self, rows: InputRows) -> None:
        """Remember input rows by sequence and by event time. Cost: O(rows), plus one numpy call per
        distinct event time."""
        if not len(rows):
            return
        channel = self.channel(rows.site, rows.lane)
        if "sequences" in self._memories:
            self._add_sequences(rows, channel)
        every = np.arange(len(rows))
        if "instants" in self._memories:
            for instant, stretch in by_value(rows.observed_ms):
                if not self._is_evicted("instants", instant):
                    self._add_instant(instant, rows, channel, every[stretch])

    def add_windows(self, rows: InputRows) -> None:
        """Remember input rows in the windows that they belong to. Must be called in the order of
        LogAppendTime (`append_order.py`)."""
        channel = self.channel(rows.site, rows.lane)
        every = np.arange(len(rows))
        for second, stretch in by_value(rows.observed_ms // REPORT_MS):
            start = second * REPORT_MS // self.window_ms * self.window_ms
            if not self._is_evicted("windows", start):
                new = self._first_reports(second * REPORT_MS, rows, channel, every[stretch])
                self._add_window(start, rows, channel, new)

    def _add_sequences(self, rows: InputRows, channel: Ints) -> None:
        block_of = rows.sequence // BLOCK
        for block, stretch in by_value(block_of):
            if self._is_evicted("sequences", block):
                continue
            cells = self.sequences.get(block)
            if cells is None:
                cells = self.sequences[block] = Columns(_BY_SEQUENCE, BLOCK)
            picked: slice | Ints = stretch
            at = rows.sequence[stretch] - block * BLOCK
            new = first_of_each(at) & (cells["seen"][at] == 0)
            if not new.all():
                picked, at = np.arange(len(rows))[stretch][new], at[new]
            self._touch("sequences", block, rows.appended_ms[picked])
            cells["seen"][at] = 1
            cells["kind"][at] = rows.kind
            cells["channel"][at] = channel[picked]
            for name in (
                "appended_ms",
                "scheduled_us",
                "num_lanes",
                "observed_ms",
                "latitude",
                "longitude",
                "period_s",
                "accuracy_percent",
                "value",
                "digest",
            ):
                cells[name][at] = getattr(rows, name)[picked]

    def _add_instant(self, instant: int, rows: InputRows, channel: Ints, picked: Ints) -> None:
        cells = self.instants.setdefault(instant, Columns(_BY_LANE))
        cells.ensure(len(self.channels))
        name = "flow" if rows.kind == FLOW else "speed"
        appended_ms = cells[f"{name}_appended_ms"]
        at = channel[picked]
        new = first_of_each(at) & (appended_ms[at] == _NEVER)
        picked, at = picked[new], at[new]
        self._touch("instants", instant, rows.appended_ms[picked])
        np.maximum.at(cells["num_lanes"], at, rows.num_lanes[picked])
        cells[name][at] = rows.value[picked]
        appended_ms[at] = rows.appended_ms[picked]
        np.maximum.at(cells["scheduled_us"], at, rows.scheduled_us[picked])

    def _first_reports(self, second_ms: int, rows: InputRows, channel: Ints, picked: Ints) -> Ints:
        """Those of the picked rows that are the first of their lane and kind in this second."""
        return picked[self._are_first(self._reported, second_ms, rows.kind, channel[picked])]

    def _are_first(self, seen: dict[int, Columns], group: int, kind: int, channel: Ints) -> Bools:
        """Which lanes come for the first time in a group of `seen`, where they are noted."""
        reported = seen.setdefault(group, Columns(_REPORTED))
        reported.ensure(len(self.channels))
        has_reported = reported["flow" if kind == FLOW else "speed"]
        new: Bools = first_of_each(channel) & ~has_reported[channel]
        has_reported[channel[new]] = True
        return new

    def _count_lanes(self, start: int, at: Ints, channel: Ints) -> None:
        """Count the lanes of flows: all of them, where a window has one flow per lane."""
        if self.window_ms > REPORT_MS:
            at = at[self._are_first(self._lanes_seen, start, FLOW, channel)]
        np.add.at(self.windows[start]["lanes"], at, 1)

    def _add_window(self, start: int, rows: InputRows, channel: Ints, picked: Ints) -> None:
        cells = self.windows.setdefault(start, Columns(_BY_SITE))
        cells.ensure(len(self.sites))
        self._touch("windows", start, rows.appended_ms[picked])
        at = rows.site[picked]
        total, count = ("flow_sum", "flows") if rows.kind == FLOW else ("speed_sum", "speeds")
        np.maximum.at(cells["num_lanes"], at, rows.num_lanes[picked])
        if rows.kind == SPEED:
            np.add.at(cells["speed_size"], at, np.abs(rows.value[picked]))
        else:
            self._count_lanes(start, at, channel[picked])
        np.add.at(cells[total], at, rows.value[picked])
        np.add.at(cells[count], at, 1)
        np.add.at(cells["appended_sum"], at, rows.appended_ms[picked] - self.base_ms)
        np.maximum.at(cells["latest_ms"], at, rows.appended_ms[picked])
        np.maximum.at(cells["scheduled_us"], at, rows.scheduled_us[picked])

    def _touch(self, memory: str, group: int, appended_ms: Ints) -> None:
        if not len(appended_ms):
            return
        newest = self.newest_ms[memory]
        self.touched[memory].add(group)
        newest[group] = max(newest.get(group, _NEVER), int(appended_ms.max()))

    def take_touched(self) -> dict[str, set[int]]:
        """Groups by memory in which something was added since the last call."""
        taken, self.touched = self.touched, {memory: set() for memory in MEMORIES}
        return taken

    def evict(self, memory: str, before: int) -> None:
        """Forget the groups of one memory (blocks, instants or windows) below `before`, for good:
        further inputs of theirs are passed over."""
        self._evicted_before[memory] = before
        cells: dict[int, Columns] = getattr(self, memory)
        for group in [group for group in cells if group < before]:
            del cells[group], self.newest_ms[memory][group]
        for seen in (self._reported, self._lanes_seen) if memory == "windows" else ():
            for group in [group for group in seen if group < before]:
                del seen[group]

    def _is_evicted(self, memory: str, group: int) -> bool:
        return group < self._evicted_before.get(memory, group)

    def rows(self) -> int:
        """Cells in memory, over all three memories; each takes 44 to 76 bytes. Groups count as
        GROUP_CELLS more, so that many small ones are bounded as well."""
        memories = (self.sequences, self.instants, self.windows)
        return sum(cells.size + GROUP_CELLS for one in memories for cells in one.values())


def complete_windows(cells: Columns, at: Ints, window_ms: int) -> npt.NDArray[np.bool_]:
    """Whether every lane of both kinds is there in every second, for site codes `at` (all below
    `cells.size`)."""
    due = cells["num_lanes"][at] * (window_ms // REPORT_MS)
    whole: Bools = (due > 0) & (cells["flows"][at] == due) & (cells["speeds"][at] == due)
    return whole
