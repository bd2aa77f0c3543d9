"""Combines inputs of a join into one group once all of them have arrived. Pure."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from services.runtime.cells import Ints
from services.watcher.records import COLUMNS, Codes, Records, joined, no_records


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

    def complete(self, inputs: Records, before_ms: int) -> Records:
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
        return {f"join_{one.name}": getattr(self.waiting, one.name) for one in COLUMNS}

    def restore(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Restore waiting inputs."""
        self.waiting = Records(*(saved[f"join_{one.name}"] for one in COLUMNS))


def _ranks(values: Ints) -> Ints:
    """The position of each ascending value among its equals."""
    return np.arange(len(values)) - np.searchsorted(values, values, "left")
