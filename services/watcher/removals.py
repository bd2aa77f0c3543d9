"""What was removed from watched topics before it was read, by compaction or from the beginning, and
which verdicts that may explain. Pure.

Offsets of a partition are consecutive but for markers of transactions, so records are missing where
they are not, if the topic is compacted. Only what existed when this process began can be missing:
later records are read as they come.
"""

from bisect import bisect_left
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from schemas.watch import Relation
from services.runtime.counting import Ints
from services.runtime.kafka import Place
from services.watcher.records import DUPLICATE, EXACT, FOUND, LATE, LOST, UNEXPECTED, VerdictColumns

FIRST_MS: Final = 0
CUT: Final = -1  # in place of the next offset of a partition without its first records
COMPACTED: Final = "removed by compaction (cleanup.policy=compact)"
DELETED: Final = "removed from the beginning of the topic, by retention or on request"


class Removed:
    """Disjoint stretches in time order, with both ends. Those at most `apart_ms` apart are one,
    which bounds their number and changes no answer to a question about longer spans."""

    def __init__(self, apart_ms: int) -> None:
        self._apart_ms = apart_ms
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start_ms: int, end_ms: int) -> None:
        """Add a stretch."""
        first = bisect_left(self._ends, start_ms - self._apart_ms)
        end = first
        while end < len(self._starts) and self._starts[end] <= end_ms + self._apart_ms:
            start_ms = min(start_ms, self._starts[end])
            end_ms = max(end_ms, self._ends[end])
            end += 1
        self._starts[first:end], self._ends[first:end] = [start_ms], [end_ms]

    def touches(self, start_ms: Ints, end_ms: Ints) -> npt.NDArray[np.bool_]:
        """Which of some spans of time a stretch overlaps."""
        if not self._ends:
            return np.zeros(len(start_ms), bool)
        place = np.searchsorted(self._ends, start_ms, "left")
        starts = np.append(np.array(self._starts, np.int64), np.iinfo(np.int64).max)
        result: npt.NDArray[np.bool_] = starts[place] <= end_ms
        return result

    def forget(self, before_ms: int) -> None:
        """Remove the stretches that end before a time."""
        first = bisect_left(self._ends, before_ms)
        del self._starts[:first], self._ends[:first]

    def saved(self) -> list[tuple[int, int]]:
        """As JSON types, for `restore`."""
        return list(zip(self._starts, self._ends, strict=True))

    def restore(self, saved: list[tuple[int, int]]) -> None:
        """Restore saved stretches."""
        self._starts, self._ends = [each[0] for each in saved], [each[1] for each in saved]


class Removals:
    """Removed records of one watch. began_ms: when this process began. between: topics that are
    both outputs and inputs, whatever a call says."""

    def __init__(
        self, relation: Relation, began_ms: int, between: frozenset[str] = frozenset()
    ) -> None:
        self._relation, self._began_ms, self._between = relation, began_ms, between
        wait_ms = relation.deadline_ms + relation.remember_ms
        self._removed = {True: Removed(wait_ms), False: Removed(relation.give_up_ms)}
        self._compacted: frozenset[str] = frozenset()
        self._next: dict[Place, int] = {}
        self._last_ms: dict[Place, int] = {}
        self._topics: dict[bool, dict[str, str]] = {True: {}, False: {}}  # how, by side

    def expect(self, places: dict[Place, int], compacted: frozenset[str]) -> None:
        """Note the next offset of each partition, and which topics are compacted."""
        cut = {place: offset for place, offset in self._next.items() if offset == CUT}
        self._next, self._compacted = places | cut, compacted

    def expect_cut(self, place: Place, is_input: bool, is_empty: bool) -> None:
        """Note that a partition that is read from its beginning has lost its first records, or all
        of them."""
        for side in self._sides(place, is_input):
            self._topics[side].setdefault(place[0], DELETED)
            if is_empty:
                self._removed[side].add(FIRST_MS, self._began_ms)
        self._last_ms[place] = FIRST_MS
        if not is_empty:
            self._next[place] = CUT

    def read(self, place: Place, is_input: bool, offsets: Ints, times: Ints) -> tuple[int, int]:
        """Look at records of a partition in reading order. Returns how many are missing before
        them, and the time of the record after the last of these."""
        expected = self._next.get(place, int(offsets[0]))
        self._next[place] = int(offsets[-1]) + 1
        begin_ms = self._last_ms.get(place, int(times[0]))
        self._last_ms[place] = int(times[-1])
        sides = self._sides(place, is_input)
        if expected == CUT:
            for side in sides:
                self._removed[side].add(FIRST_MS, int(times[0]))
            expected = int(offsets[0])
        missing = offsets - np.append(expected - 1, offsets[:-1]) - 1
        is_gap = (missing > 0) & (times < self._began_ms)
        if place[0] not in self._compacted or not is_gap.any():
            return 0, 0
        for side in sides:
            self._topics[side][place[0]] = COMPACTED
        before_ms = np.append(begin_ms, times[:-1])
        for row in np.flatnonzero(is_gap).tolist():
            ends = (int(before_ms[row]), int(times[row]))
            for side in sides:
                self._removed[side].add(min(ends), max(ends))
        return int(missing[is_gap].sum()), int(times[is_gap][-1])

    def _sides(self, place: Place, is_input: bool) -> tuple[bool, ...]:
        return (True, False) if place[0] in self._between else (is_input,)

    def how(self, topic: str) -> str:
        """How records of a topic were removed."""
        return next(side[topic] for side in self._topics.values() if topic in side)

    def why(self, is_input: bool) -> str:
        """What may explain a missing output of an input, or an output without its input."""
        side = sorted(self._topics[not is_input].items())
        topics = "; ".join(f"of {topic} {how}" for topic, how in side)
        return f"its {'output' if is_input else 'input'} may be among the records {topics}"

    def may_explain(self, judged: VerdictColumns) -> npt.NDArray[np.bool_]:
        """Which verdicts may be due to removed records: on outputs without an input or without one
        of their own, and on inputs without an output."""
        relation, verdict = self._relation, judged.verdict
        is_alone = (verdict == UNEXPECTED) | (verdict == DUPLICATE)
        # The output of a removed input may have been paired with a later input.
        is_early = ((verdict == EXACT) | (verdict == LATE)) & (judged.output_ms < judged.input_ms)
        start_ms = judged.output_ms - relation.remember_ms
        of_input = self._removed[True].touches(start_ms, judged.output_ms + relation.deadline_ms)
        is_lost = (verdict == LOST) | (verdict == FOUND)
        end_ms = judged.input_ms + relation.give_up_ms
        of_output = self._removed[False].touches(judged.input_ms, end_ms)
        result: npt.NDArray[np.bool_] = (is_alone | is_early) & of_input | is_lost & of_output
        return result

    def forget(self, before_ms: int) -> None:
        """Forget what can explain no verdict from now on."""
        since_ms = before_ms - 2 * (self._relation.remember_ms + self._relation.deadline_ms)
        for side in self._removed.values():
            side.forget(since_ms)

    def saved(self) -> dict[str, Any]:
        """As JSON types, for `restore`."""
        sides = {str(int(each)): removed.saved() for each, removed in self._removed.items()}
        topics = {str(int(each)): topics for each, topics in self._topics.items()}
        last = [[*place, time_ms] for place, time_ms in self._last_ms.items()]
        cut = [list(place) for place, offset in self._next.items() if offset == CUT]
        return {"sides": sides, "topics": topics, "last_ms": last, "cut": cut}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore saved state. The next offsets are those of the position, which `expect` has."""
        for is_input in (True, False):
            self._removed[is_input].restore(saved["sides"][str(int(is_input))])
            self._topics[is_input] = saved["topics"][str(int(is_input))]
        self._last_ms = {(topic, number): ms for topic, number, ms in saved["last_ms"]}
        for topic, number in saved["cut"]:
            self._next[topic, number] = CUT
