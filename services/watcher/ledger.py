"""Verdicts on the outputs of a watched pipeline, from times and identities alone. Pure.

In time order, inputs before outputs of the same millisecond:

- An output belongs to the oldest group of its identity that has no output and is not given up; it
  is exact, or late after the deadline.
- Else to the oldest group that was given up: the missing output becomes late.
- Else it is a duplicate if a group of its identity has its output.
- Else it waits for its input at most for the deadline: by the input's clock it came too early, and
  its latency is negative. After that it is unexpected.
- A group without an output is missing when it is given up, except for a filter. It is forgotten
  later.

Records are judged once everything before a time has been read, so verdicts depend on the topics and
not on the order in which they are read.

Inputs of a join are one group once all of them have arrived.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from schemas.watch import Relation
from services.runtime.counting import Ints
from services.watcher.groups import MISSING, PAIRED, Matches, Remembered, first_at
from services.watcher.records import (
    DUPLICATE,
    EXACT,
    FOUND,
    LATE,
    NONE_MS,
    UNEXPECTED,
    Codes,
    RecordColumns,
    VerdictColumns,
    joined,
    no_records,
    of_outputs,
    restored_records,
    saved_records,
    together,
)


class Candidates:
    """The groups of some identities, those of one identity side by side in time order.

    times: of each group. states: of each group, updated. A search takes logarithmic time: `_heirs`
    leads from a group to the next one without an output (union-find with path halving).
    """

    def __init__(self, relation: Relation, times: Ints, states: npt.NDArray[np.uint8]) -> None:
        self._relation = relation
        self._times: list[int] = times.tolist()
        self.states = states.copy()
        places = np.arange(len(states))
        self._heirs: list[int] = [*np.where(states == PAIRED, places + 1, places), len(states)]

    def take(self, time_ms: int, start: int, end: int) -> tuple[int, int] | None:
        """The place and verdict of the group, from `start` to `end`, that an output at a time
        belongs to, which is paired then; None if the output must wait."""
        result = self._choose(time_ms, start, end)
        if result is not None and result[1] != DUPLICATE:
            self.states[result[0]] = PAIRED
            self._heirs[result[0]] = result[0] + 1
        return result

    def _choose(self, time_ms: int, start: int, end: int) -> tuple[int, int] | None:
        relation, times = self._relation, self._times
        after = bisect_right(times, time_ms, start, end)
        hoped = self._open_from(time_ms - relation.give_up_ms, start, after)
        if hoped is not None:
            return hoped, EXACT if time_ms - times[hoped] <= relation.deadline_ms else LATE
        given_up = self._open_from(time_ms - relation.remember_ms, start, after)
        if given_up is not None:
            return given_up, LATE
        if after > start and time_ms - times[after - 1] <= relation.remember_ms:
            return after - 1, DUPLICATE
        later = self._open_from(time_ms, after, end)
        if later is not None and times[later] - time_ms <= relation.deadline_ms:
            return later, EXACT
        return None

    def _open_from(self, from_ms: int, start: int, end: int) -> int | None:
        """The first group from a time on, from `start` to `end`, without an output."""
        place = bisect_left(self._times, from_ms, start, end)
        heirs = self._heirs
        while heirs[place] != place:
            heirs[place] = heirs[heirs[place]]
            place = heirs[place]
        return place if place < end else None


class _Answers(NamedTuple):
    """Matched outputs and groups: rows of outputs, numbers of groups, verdicts, and which groups
    were missing before."""

    row: Ints
    number: Ints
    verdict: npt.NDArray[np.uint8]
    was_missing: npt.NDArray[np.bool_]


class WatchLedger:
    """Groups, unmatched outputs, and their verdicts."""

    def __init__(self, relation: Relation) -> None:
        self._relation = relation
        self._remembered = Remembered(relation)
        self.groups = self._remembered.groups
        self.waiting = no_records()

    def __len__(self) -> int:
        return len(self.groups)

    def judge(
        self, inputs: RecordColumns, outputs: RecordColumns, before_ms: int
    ) -> VerdictColumns:
        """Process all new groups and outputs with times before `before_ms`, in time order; returns
        the resulting verdicts."""
        self._remembered.add(inputs)
        outputs = joined([self.waiting, outputs]).in_order()
        answers, left = self._answers(outputs)
        judged = [part for answer in answers for part in self._told(outputs, answer)]
        rest = outputs.take(left)
        in_vain = rest.time_ms + self._relation.deadline_ms < before_ms
        judged.append(self._in_vain(rest.take(in_vain)))
        self.waiting = rest.take(~in_vain)
        judged.append(self._remembered.give_up(before_ms))
        self._remembered.forget(before_ms)
        return together(judged)

    def keep(self, limit: int) -> None:
        """Keep only identities whose hash is below a limit."""
        self._remembered.keep(limit)
        self.waiting = self.waiting.take(self.waiting.hash < np.uint64(limit))

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        """The complete state, for `restore`."""
        return saved_records(self.waiting, "waiting") | self._remembered.saved()

    def restore(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Restore saved state."""
        self.waiting = restored_records(saved, "waiting")
        self._remembered.restore(saved)

    def _answers(self, outputs: RecordColumns) -> tuple[list[_Answers], Ints]:
        """The matches of outputs, and the rows without a match."""
        if not len(outputs):
            return [], np.empty(0, np.int64)
        names, who, often = np.unique(outputs.hash, return_inverse=True, return_counts=True)
        result = self.groups.find(names)
        groups_of = np.bincount(result.asked, minlength=len(names))
        alone = (often == 1) & (groups_of == 1)
        row_of = np.empty(len(names), np.int64)
        row_of[who] = np.arange(len(outputs))
        mine = alone[result.asked]
        plain, rest = self._plain(outputs, row_of[result.asked[mine]], result.number[mine])
        answers, left = [plain], [np.flatnonzero((groups_of == 0)[who]), rest]
        several = ~alone & (groups_of > 0)
        if several.any():
            ordered, rest = self._one_by_one(outputs, who, several, result)
            answers.append(ordered)
            left.append(rest)
        return answers, np.sort(np.concatenate(left))

    def _plain(self, outputs: RecordColumns, rows: Ints, numbers: Ints) -> tuple[_Answers, Ints]:
        """Identities with one output and one group."""
        took_ms = outputs.time_ms[rows] - self.groups.of("time_ms", numbers)
        state = self.groups.of("state", numbers)
        verdict = np.where(took_ms <= self._relation.deadline_ms, EXACT, LATE).astype(np.uint8)
        verdict[state == PAIRED] = DUPLICATE
        earliest_ms = np.where(state == PAIRED, 0, -self._relation.deadline_ms)
        good = (took_ms >= earliest_ms) & (took_ms <= self._relation.remember_ms)
        numbers = numbers[good]
        self.groups.set_state(numbers, PAIRED)
        return _Answers(rows[good], numbers, verdict[good], state[good] == MISSING), rows[~good]

    def _one_by_one(
        self, outputs: RecordColumns, who: Ints, several: npt.NDArray[np.bool_], matches: Matches
    ) -> tuple[_Answers, Ints]:
        """Identities with several outputs or groups, each in time order."""
        rows = np.flatnonzero(several[who])
        mine = several[matches.asked]
        asked, numbers = self._in_time_order(matches.asked[mine], matches.number[mine])
        starts = np.searchsorted(asked, who[rows], "left").tolist()
        ends = np.searchsorted(asked, who[rows], "right").tolist()
        states = self.groups.of("state", numbers)
        candidates = Candidates(self._relation, self.groups.of("time_ms", numbers), states)
        answers: list[tuple[int, int, int]] = []
        left: list[int] = []
        for row, time_ms, start, end in zip(
            rows.tolist(), outputs.time_ms[rows].tolist(), starts, ends, strict=True
        ):
            match = candidates.take(time_ms, start, end)
            if match is None:
                left.append(row)
            else:
                answers.append((row, *match))
        self.groups.set_states(numbers, candidates.states)
        row_of, place, verdict = np.array(answers, np.int64).reshape(-1, 3).T
        was_missing = (states[place] == MISSING) & (verdict != DUPLICATE)
        judged = _Answers(row_of, numbers[place], verdict.astype(np.uint8), was_missing)
        return judged, np.array(left, np.int64)

    def _in_time_order(self, asked: Ints, numbers: Ints) -> tuple[Ints, Ints]:
        """The groups of each identity in time order; some may have been added late."""
        order = np.lexsort((self.groups.of("time_ms", numbers), asked))
        return asked[order], numbers[order]

    def _told(self, outputs: RecordColumns, answers: _Answers) -> list[VerdictColumns]:
        rows = outputs.take(answers.row)
        input_ms = self.groups.of("time_ms", answers.number)
        by = np.where(rows.by >= 0, rows.by, self.groups.of("by", answers.number)).astype(np.int32)
        rows = replace(rows, by=by)
        back = answers.was_missing & (self._relation.kind != "filter")
        again = np.full(int(back.sum()), FOUND, np.uint8)
        judged = of_outputs(answers.verdict, rows, input_ms)
        return [judged, of_outputs(again, rows.take(back), input_ms[back])]

    def _in_vain(self, outputs: RecordColumns) -> VerdictColumns:
        """Outputs whose wait has ended: duplicates of one that also came too early, or
        unexpected."""
        count = len(outputs)
        verdict = np.full(count, UNEXPECTED, np.uint8)
        input_ms = np.full(count, NONE_MS, np.int64)
        names, who = np.unique(outputs.hash, return_inverse=True)
        result = self.groups.find(names)
        asked, numbers = self._in_time_order(result.asked, result.number)
        times = self.groups.of("time_ms", numbers)
        starts, ends = (np.searchsorted(asked, who, side) for side in ("left", "right"))
        later = first_at(times, starts, ends, outputs.time_ms + 1)
        rows = np.flatnonzero(later < ends)
        at_ms = times[later[rows]]
        early = at_ms - outputs.time_ms[rows] <= self._relation.deadline_ms
        verdict[rows[early]] = DUPLICATE
        input_ms[rows[early]] = at_ms[early]
        return of_outputs(verdict, outputs, input_ms)


class Joining:
    """Groups of a fixed number of inputs with one identity; a group has the time of the last.

    topics_of: numbers of the topics of place codes; the k-th group then has the k-th input of each
    of `inputs_per_output` topics. None: it has the next inputs of any topic.

    Waiting inputs are kept in time order, with the last group that is complete. If the next input
    of an identity comes more than `keep_ms` after the previous one, those waiting are dropped: the
    join has no output for them.
    """

    def __init__(
        self,
        inputs_per_output: int,
        keep_ms: int,
        topics_of: Callable[[Codes], Ints] | None = None,
    ) -> None:
        self._count = inputs_per_output
        self._keep_ms = keep_ms
        self._topics_of = topics_of
        self.waiting = no_records()

    def complete(self, inputs: RecordColumns, before_ms: int) -> RecordColumns:
        """The groups that these inputs complete, in time order. All inputs with times before
        `before_ms` must have been passed."""
        if self._count == 1 or not len(inputs) + len(self.waiting):
            return inputs
        every = joined([self.waiting, inputs])
        order = np.argsort(every.hash, kind="stable")
        hash_, time_ms = every.hash[order], every.time_ms[order]
        is_new = order >= len(self.waiting)
        is_apart = is_new[1:] & (time_ms[1:] - time_ms[:-1] > self._keep_ms)
        begins = np.append(True, (hash_[1:] != hash_[:-1]) | is_apart)
        which = np.cumsum(begins) - 1
        ends = np.append(np.flatnonzero(begins)[1:], len(order))
        group, complete = self._groups(which, every.place[order])
        rows = np.flatnonzero(group < complete[which])
        rows = rows[np.lexsort((group[rows], which[rows]))]
        last = rows.reshape(-1, self._count)[:, -1]
        has_rest = np.bincount(which) > self._count * complete
        is_open = time_ms[ends - 1] + self._keep_ms >= before_ms
        is_left = (has_rest & is_open)[which] & (group >= complete[which] - 1)
        self.waiting = every.take(np.sort(order[is_left]))
        return every.take(order[last[is_new[last]]]).in_order()

    def _groups(self, which: Ints, places: Codes) -> tuple[Ints, Ints]:
        """For inputs of ascending sequences: the group of each within its sequence; and for each
        sequence, how many groups are complete."""
        sequences = int(which[-1]) + 1
        if self._topics_of is None:
            return _ranks(which) // self._count, np.bincount(which) // self._count
        side = which * self._count + self._topics_of(places)
        counts = np.bincount(side, minlength=sequences * self._count)
        order = np.argsort(side, kind="stable")
        group = np.empty(len(side), np.int64)
        group[order] = _ranks(side[order])
        return group, counts.reshape(sequences, self._count).min(axis=1)

    def keep(self, limit: int) -> None:
        """Keep only identities whose hash is below a limit."""
        self.waiting = self.waiting.take(self.waiting.hash < np.uint64(limit))

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        """Waiting inputs, for `restore`."""
        return saved_records(self.waiting, "join")

    def restore(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Restore waiting inputs."""
        self.waiting = restored_records(saved, "join")


def _ranks(values: Ints) -> Ints:
    """The position of each ascending value among its equals."""
    return np.arange(len(values)) - np.searchsorted(values, values, "left")
