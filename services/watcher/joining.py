"""Combines inputs of a join into one group once all of them have arrived. Pure."""

from typing import Any

import numpy as np
import numpy.typing as npt

from services.watcher.records import COLUMNS, Records, joined, no_records


class Joining:
    """Groups of a fixed number of inputs with one identity; a group has the time of the last.

    Waiting inputs are kept in time order. An input more than `keep_ms` older than the next one of
    its identity is dropped, with those waiting with it: the join has no output for them.
    """

    def __init__(self, inputs_per_output: int, keep_ms: int) -> None:
        self._count = inputs_per_output
        self._keep_ms = keep_ms
        self.waiting = no_records()

    def complete(self, inputs: Records, before_ms: int) -> Records:
        """The groups that these inputs complete, in time order. All inputs with times before
        `before_ms` must have been passed."""
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
        """Waiting inputs, for `restore`."""
        return {f"join_{one.name}": getattr(self.waiting, one.name) for one in COLUMNS}

    def restore(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Restore waiting inputs."""
        self.waiting = Records(*(saved[f"join_{one.name}"] for one in COLUMNS))
