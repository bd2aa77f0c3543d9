"""Inputs of a join become one group when all of them are there. Pure."""

from typing import Any

import numpy as np
import numpy.typing as npt

from services.watcher.records import COLUMNS, Records, joined, no_records


class Joining:
    """Groups of so many inputs of one identity; a group has the time of the last of them.

    Inputs that wait for others are in order of time. One that is more than `keep_ms` older than the
    next of its identity is forgotten, with those that wait with it: a join has no output of them.
    """

    def __init__(self, inputs_per_output: int, keep_ms: int) -> None:
        self._count = inputs_per_output
        self._keep_ms = keep_ms
        self.waiting = no_records()

    def complete(self, inputs: Records, before_ms: int) -> Records:
        """The groups that these inputs complete, in order of time. All with times before
        `before_ms` must have been given."""
        if self._count == 1 or not len(inputs) + len(self.waiting):
            return inputs
        every = joined([self.waiting, inputs])
        order = np.argsort(every.hash, kind="stable")
        hash_, time_ms = every.hash[order], every.time_ms[order]
        is_apart = time_ms[1:] - time_ms[:-1] > self._keep_ms
        begins = np.append(True, (hash_[1:] != hash_[:-1]) | is_apart)
        begin_of = np.flatnonzero(begins)
        which = np.cumsum(begins) - 1
        rank = np.arange(len(order)) - begin_of[which]
        ends = np.append(begin_of[1:], len(order))
        sizes = (ends - begin_of)[which]
        is_last = rank % self._count == self._count - 1
        is_left = rank >= sizes - sizes % self._count
        is_left &= time_ms[ends - 1][which] + self._keep_ms >= before_ms
        self.waiting = every.take(np.sort(order[is_left]))
        return every.take(order[is_last]).in_order()

    def keep(self, limit: int) -> None:
        """Keep only identities whose hash is below a limit."""
        self.waiting = self.waiting.take(self.waiting.hash < np.uint64(limit))

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        """What waits, for `restore`."""
        return {f"join_{one.name}": getattr(self.waiting, one.name) for one in COLUMNS}

    def restore(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Have what was saved wait."""
        self.waiting = Records(*(saved[f"join_{one.name}"] for one in COLUMNS))
