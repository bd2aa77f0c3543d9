"""Verdicts on outputs that aggregate the inputs of their identity with an event time in their
window. Pure.

In time order, inputs before outputs of the same millisecond:

- An output belongs to the inputs of its window that existed at its time; its latency is measured
  from the last of them. It is exact, or late after the deadline.
- It is a duplicate if the window already has an output and no input came since. With an input
  since, it is a new value of that window, exact or late by the same rule.
- Without any input it waits for one at most for the deadline: by the input's clock it came too
  early. After that it is unexpected.
- An input is missing if it is in fewer windows than the relation requires when it is given up: an
  output was lost, or was made before the input arrived.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from schemas.watch import Relation
from services.runtime.counting import Ints
from services.watcher.groups import MISSING, PAIRED, Groups, Remembered, first_at, named
from services.watcher.records import (
    DUPLICATE,
    EXACT,
    FOUND,
    LATE,
    NONE_MS,
    UNEXPECTED,
    Hashes,
    RecordColumns,
    VerdictColumns,
    joined,
    mixed,
    no_records,
    of_outputs,
    restored_records,
    saved_records,
    together,
)

FAR_MS: Final = 1 << 62
HAD: Final = "had_"
SIDES: Final[tuple[Any, ...]] = ("left", "right")
MOST_AT_ONCE: Final = 1 << 18  # inputs, each once per window; bounds the memory


@dataclass(frozen=True)
class _Asked:
    """Some windows and all their outputs. row: the outputs, by window and in judging order within
    one; code: of the window of each; which: its index. For each window: the range of its inputs in
    time_ms, ascending within it, and number."""

    row: Ints
    code: Ints
    which: Ints
    low: Ints
    high: Ints
    time_ms: Ints
    number: Ints


@dataclass(frozen=True)
class _WindowAnswers:
    """Outputs with inputs, by window and in judging order within one. row: of the output; code,
    which: its window; last_ms, last: time and number of the last input; known_ms: time of the last
    input of an earlier output of the window."""

    row: Ints
    code: Ints
    which: Ints
    last_ms: Ints
    last: Ints
    known_ms: Ints

    @property
    def is_new(self) -> npt.NDArray[np.bool_]:
        """Mask of the outputs that are not duplicates."""
        result: npt.NDArray[np.bool_] = self.last_ms > self.known_ms
        return result

    def take(self, rows: Any) -> "_WindowAnswers":
        """Select rows."""
        return _WindowAnswers(*(getattr(self, each.name)[rows] for each in fields(self)))


class Windows:
    """Inputs, windows with an output, and outputs that wait for an input.

    A window is remembered by identity and `window_codes` in place of an event time, with the time
    of its last input.
    """

    def __init__(self, relation: Relation) -> None:
        self._relation = relation
        self._remembered = Remembered(relation, by_start=True)
        self.groups = self._remembered.groups
        self._had = Groups(by_start=True)
        self.waiting = no_records()

    def __len__(self) -> int:
        return len(self.groups) + len(self._had)

    def judge(
        self, inputs: RecordColumns, outputs: RecordColumns, before_ms: int
    ) -> VerdictColumns:
        """Process all new inputs and outputs with times before `before_ms`, in time order; returns
        the resulting verdicts."""
        self._remembered.add(inputs)
        outputs = joined([self.waiting, outputs]).in_order()
        judged, last = [], []
        is_left = np.ones(len(outputs), bool)
        for asked in self._asked(outputs):
            answers = self._answers(outputs, asked)
            is_left[answers.row] = False
            judged.append(self._told(outputs, answers))
            new = answers.take(answers.is_new)
            judged.append(self._counted(outputs, asked, new))
            last.append(new.take(np.append(_differ(new.which), True)[: len(new.which)]))
        self._note(outputs, last)
        rest = outputs.take(is_left)
        in_vain = rest.time_ms + self._relation.deadline_ms < before_ms
        unexpected = np.full(int(in_vain.sum()), UNEXPECTED, np.uint8)
        nothing = np.full(len(unexpected), NONE_MS, np.int64)
        judged.append(of_outputs(unexpected, rest.take(in_vain), nothing))
        self.waiting = rest.take(~in_vain)
        judged.append(self._remembered.give_up(before_ms))
        self._remembered.forget(before_ms)
        since_ms = before_ms - self._relation.remember_ms
        self._had.forget(self._had.until(since_ms, self._had.first))
        return together(judged)

    def keep(self, limit: int) -> None:
        """Keep only identities whose hash is below a limit."""
        self._remembered.keep(limit)
        self._had.keep(limit)
        self.waiting = self.waiting.take(self.waiting.hash < np.uint64(limit))

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        """The complete state, for `restore`."""
        waiting = saved_records(self.waiting, "waiting")
        had = {f"{HAD}{name}": column for name, column in self._had.saved().items()}
        return waiting | had | self._remembered.saved()

    def restore(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Restore saved state."""
        self.waiting = restored_records(saved, "waiting")
        self._had.restore(named(saved, HAD))
        self._remembered.restore(saved)

    def _asked(self, outputs: RecordColumns) -> Iterator[_Asked]:
        """Each window once, with its inputs, in parts of at most MOST_AT_ONCE inputs or of one
        window."""
        code = window_codes(outputs)
        order = np.lexsort((code, outputs.hash))
        is_first = np.append(True, _differ(outputs.hash[order]) | _differ(code[order]))
        edges = np.append(np.flatnonzero(is_first[: len(order)]), len(order))
        each = outputs.take(order[edges[:-1]])
        windows = each.hash, each.start_us, each.end_us
        for first, end, result in self.groups.find_in_parts(*windows, MOST_AT_ONCE):
            row = order[edges[first] : edges[end]]
            which = np.repeat(np.arange(end - first), np.diff(edges[first : end + 1]))
            time_ms = self.groups.of("time_ms", result.number)
            in_time = np.lexsort((time_ms, result.asked))
            bounds = np.searchsorted(result.asked, np.arange(first, end + 1))
            inputs = bounds[:-1], bounds[1:], time_ms[in_time], result.number[in_time]
            yield _Asked(row, code[row], which, *inputs)

    def _answers(self, outputs: RecordColumns, asked: _Asked) -> _WindowAnswers:
        low, high = asked.low[asked.which], asked.high[asked.which]
        time_ms = outputs.time_ms[asked.row]
        after = first_at(asked.time_ms, low, high, time_ms + 1)
        times = np.append(asked.time_ms, FAR_MS)  # sentinel after the last
        relation = self._relation
        has_before = (after > low) & (time_ms - times[after - 1] <= relation.remember_ms)
        has_after = (after < high) & (times[after] - time_ms <= relation.deadline_ms)
        has_input = np.flatnonzero(has_before | has_after)
        row, code, which = (each[has_input] for each in (asked.row, asked.code, asked.which))
        place = (after - has_before)[has_input]
        last_ms = times[place]
        known_ms = self._known_ms(outputs.hash[row], code, last_ms)
        return _WindowAnswers(row, code, which, last_ms, asked.number[place], known_ms)

    def _known_ms(self, hash_: Hashes, codes: Ints, last_ms: Ints) -> Ints:
        """Time of the last input in any earlier output of the window, for each of some outputs, in
        order."""
        if not len(hash_):
            return last_ms
        is_other = _differ(hash_) | _differ(codes)
        known_ms = np.append(NONE_MS, np.where(is_other, NONE_MS, last_ms[:-1]))
        first = np.flatnonzero(np.append(True, is_other))
        had = self._had.find(hash_[first], codes[first], codes[first] + 1)
        asked, starts = np.unique(had.asked, return_index=True)
        if len(asked):
            times = self._had.of("time_ms", had.number)
            known_ms[first[asked]] = np.maximum.reduceat(times, starts)
        return known_ms

    def _told(self, outputs: RecordColumns, answers: _WindowAnswers) -> VerdictColumns:
        rows = outputs.take(answers.row)
        is_late = rows.time_ms - answers.last_ms > self._relation.deadline_ms
        verdict = np.where(is_late, LATE, EXACT).astype(np.uint8)
        verdict[~answers.is_new] = DUPLICATE
        by = np.where(rows.by >= 0, rows.by, self.groups.of("by", answers.last)).astype(np.int32)
        return of_outputs(verdict, replace(rows, by=by), answers.last_ms)

    def _counted(
        self, outputs: RecordColumns, asked: _Asked, new: _WindowAnswers
    ) -> VerdictColumns:
        """Count the windows of inputs; returns those that were missing and are not any more. In a
        window, an input is in the first output whose last input is not before it."""
        windows = np.arange(len(asked.low))
        window = np.repeat(windows, asked.high - asked.low)
        low, high = (np.searchsorted(new.which, windows, side)[window] for side in SIDES)
        result = first_at(new.last_ms, low, high, asked.time_ms)
        there = np.flatnonzero(result < high)
        result, time_ms = result[there], asked.time_ms[there]
        took_ms = outputs.time_ms[new.row[result]] - time_ms
        is_in = (time_ms > new.known_ms[result]) & (took_ms <= self._relation.remember_ms)
        numbers, times = np.unique(asked.number[there][is_in], return_counts=True)
        numbers = numbers[self.groups.add_windows(numbers, times) >= self._relation.windows]
        was_missing = self.groups.of("state", numbers) == MISSING
        self.groups.set_state(numbers, PAIRED)
        return self._remembered.said(FOUND, numbers[was_missing])

    def _note(self, outputs: RecordColumns, last: list[_WindowAnswers]) -> None:
        """Remember the windows that now have an output, by the last output of each."""
        if not last:
            return
        row, code, last_ms = (
            np.concatenate([getattr(part, name) for part in last])
            for name in ("row", "code", "last_ms")
        )
        in_time = np.argsort(last_ms, kind="stable")
        rows = outputs.take(row[in_time])
        self._had.add(
            hash=rows.hash,
            time_ms=last_ms[in_time],
            place=rows.place,
            offset=rows.offset,
            by=rows.by,
            start_us=code[in_time],
        )


def _differ(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which values after the first differ from the one before."""
    result: npt.NDArray[np.bool_] = values[1:] != values[:-1]
    return result


def window_codes(outputs: RecordColumns) -> Ints:
    """A 62-bit code of the start and end of a window."""
    both = mixed(outputs.start_us.view(np.uint64)) ^ outputs.end_us.view(np.uint64)
    return (mixed(both) >> np.uint64(2)).view(np.int64)
