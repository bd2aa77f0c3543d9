"""Verdicts on outputs that are aggregates of the inputs of their identity whose event time is in
their window. Pure.

In order of time, inputs before outputs of the same millisecond:

- An output is of the inputs of its window that were there at its time; its latency is since the
  last of them. It is exact, or late after the deadline.
- Where an output of the same window came before, and no input since, it is a duplicate. With an
  input since it is another value of that window, exact or late by the same rule.
- Without any input it waits at most the deadline for one, by whose clock it came too early; what
  waits in vain is unexpected.
- An input is missing when it is given up and is in fewer windows than the relation says: because an
  output is lost, or was made without it as it came too late.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from schemas.watch import Relation
from services.runtime.cells import Ints
from services.watcher.groups import MISSING, PAIRED, Found, Groups
from services.watcher.identity import Hashes, mixed
from services.watcher.records import (
    COLUMNS,
    DUPLICATE,
    EXACT,
    FOUND,
    LATE,
    NONE_MS,
    UNEXPECTED,
    Judged,
    Records,
    joined,
    no_records,
    of_outputs,
    together,
)
from services.watcher.remembered import Remembered

FAR_MS: Final = 1 << 62


@dataclass(frozen=True)
class _Answers:
    """Outputs that have inputs. row: of the output; last_ms, last: time and number of the last of
    its inputs; known_ms: of the last that an earlier output of its window had."""

    row: Ints
    last_ms: Ints
    last: Ints
    known_ms: Ints

    @property
    def is_new(self) -> npt.NDArray[np.bool_]:
        """Which are no duplicates."""
        found: npt.NDArray[np.bool_] = self.last_ms > self.known_ms
        return found


class Windows:
    """Inputs, windows that had an output, and outputs that wait for an input.

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

    def judge(self, inputs: Records, outputs: Records, before_ms: int) -> Judged:
        """Take in all inputs and outputs with times before `before_ms`, in order of time, that were
        not taken in yet; returns what can be said now."""
        self._remembered.add(inputs)
        outputs = joined([self.waiting, outputs]).in_order()
        codes = window_codes(outputs)
        found = self._usable(outputs)
        answers = self._answers(outputs, codes, found)
        judged = [self._told(outputs, answers), self._counted(len(outputs), answers, found)]
        self._note(outputs, codes, answers)
        rest = outputs.take(np.setdiff1d(np.arange(len(outputs)), answers.row))
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
        """Everything that is remembered, for `restore`."""
        waiting = {f"waiting_{one.name}": getattr(self.waiting, one.name) for one in COLUMNS}
        had = {f"had_{name}": column for name, column in self._had.saved().items()}
        return waiting | had | self._remembered.saved()

    def restore(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Remember what was saved."""
        self.waiting = Records(*(saved[f"waiting_{one.name}"] for one in COLUMNS))
        self._had.restore({name: saved[f"had_{name}"] for name in self._had.saved()})
        self._remembered.restore(saved)

    def _usable(self, outputs: Records) -> Found:
        """Inputs in the windows of outputs that are not forgotten at the time of the output, nor so
        much later that it does not wait for them."""
        found = self.groups.find(outputs.hash, outputs.start_us, outputs.end_us)
        took_ms = outputs.time_ms[found.asked] - self.groups.of("time_ms", found.number)
        relation = self._relation
        good = (took_ms <= relation.remember_ms) & (took_ms >= -relation.deadline_ms)
        return Found(found.asked[good], found.number[good])

    def _answers(self, outputs: Records, codes: Ints, found: Found) -> _Answers:
        """Outputs with inputs, by window and within one in the order in which they are judged."""
        row, starts = np.unique(found.asked, return_index=True)
        if not len(row):
            nothing = np.empty(0, np.int64)
            return _Answers(nothing, nothing, nothing, nothing)
        time_ms = self.groups.of("time_ms", found.number)
        is_before = time_ms <= outputs.time_ms[found.asked]
        last_ms = np.maximum.reduceat(np.where(is_before, time_ms, NONE_MS), starts)
        first_ms = np.minimum.reduceat(np.where(is_before, FAR_MS, time_ms), starts)
        last_ms = np.where(last_ms == NONE_MS, first_ms, last_ms)
        which = np.repeat(np.arange(len(row)), np.diff(np.append(starts, len(found.asked))))
        number = np.where(time_ms == last_ms[which], found.number, -1)
        last = np.maximum.reduceat(number, starts)
        judged_ms = np.maximum(outputs.time_ms[row], last_ms)
        order = np.lexsort((row, judged_ms, codes[row], outputs.hash[row]))
        row, last_ms, last = row[order], last_ms[order], last[order]
        known_ms = self._known_ms(outputs.hash[row], codes[row], last_ms)
        return _Answers(row, last_ms, last, known_ms)

    def _known_ms(self, hash_: Hashes, codes: Ints, last_ms: Ints) -> Ints:
        """Until when the inputs of a window were in an output before each of some, in order."""
        is_same = (hash_[1:] == hash_[:-1]) & (codes[1:] == codes[:-1])
        known_ms = np.append(NONE_MS, np.where(is_same, last_ms[:-1], NONE_MS))
        first = np.flatnonzero(np.append(True, ~is_same))
        had = self._had.find(hash_[first], codes[first], codes[first] + 1)
        asked, starts = np.unique(had.asked, return_index=True)
        if len(asked):
            times = self._had.of("time_ms", had.number)
            known_ms[first[asked]] = np.maximum.reduceat(times, starts)
        return known_ms

    def _told(self, outputs: Records, answers: _Answers) -> Judged:
        rows = outputs.take(answers.row)
        is_late = rows.time_ms - answers.last_ms > self._relation.deadline_ms
        verdict = np.where(is_late, LATE, EXACT).astype(np.uint8)
        verdict[~answers.is_new] = DUPLICATE
        by = np.where(rows.by >= 0, rows.by, self.groups.of("by", answers.last)).astype(np.int32)
        return of_outputs(verdict, replace(rows, by=by), answers.last_ms)

    def _counted(self, outputs: int, answers: _Answers, found: Found) -> Judged:
        """Count in how many windows inputs are; returns which were missing and are not any more."""
        last_ms, known_ms = (np.full(outputs, NONE_MS, np.int64) for _ in range(2))
        last_ms[answers.row], known_ms[answers.row] = answers.last_ms, answers.known_ms
        time_ms = self.groups.of("time_ms", found.number)
        is_new = (time_ms <= last_ms[found.asked]) & (time_ms > known_ms[found.asked])
        numbers, windows = np.unique(found.number[is_new], return_counts=True)
        numbers = numbers[self.groups.add_windows(numbers, windows) >= self._relation.windows]
        was_missing = self.groups.of("state", numbers) == MISSING
        self.groups.set_state(numbers, PAIRED)
        return self._remembered.said(FOUND, numbers[was_missing])

    def _note(self, outputs: Records, codes: Ints, answers: _Answers) -> None:
        """Remember the windows that have an output now."""
        mine = np.flatnonzero(answers.is_new)
        mine = mine[np.argsort(answers.last_ms[mine], kind="stable")]
        rows = outputs.take(answers.row[mine])
        self._had.add(
            hash=rows.hash,
            time_ms=answers.last_ms[mine],
            place=rows.place,
            offset=rows.offset,
            by=rows.by,
            start_us=codes[answers.row[mine]],
        )


def window_codes(outputs: Records) -> Ints:
    """A number of 62 bits for the begin and end of a window."""
    both = mixed(outputs.start_us.view(np.uint64)) ^ outputs.end_us.view(np.uint64)
    return (mixed(both) >> np.uint64(2)).view(np.int64)
