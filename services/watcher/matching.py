"""Finds the group of each output where an identity has several. Pure."""

from bisect import bisect_left, bisect_right

import numpy as np
import numpy.typing as npt

from schemas.watch import Relation
from services.runtime.cells import Ints
from services.watcher.groups import PAIRED
from services.watcher.records import DUPLICATE, EXACT, LATE


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
        found = self._choose(time_ms, start, end)
        if found is not None and found[1] != DUPLICATE:
            self.states[found[0]] = PAIRED
            self._heirs[found[0]] = found[0] + 1
        return found

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
