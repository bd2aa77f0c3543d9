"""Inputs that wait for their output, are given up, and are forgotten. Pure."""

from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.watch import Relation
from services.runtime.cells import Ints
from services.watcher.groups import MISSING, OPEN, Groups
from services.watcher.records import LOST, NONE_MS, Judged, Records


class Remembered:
    """Groups of a relation. given_up: number of the first that is not given up."""

    def __init__(self, relation: Relation, by_start: bool = False) -> None:
        self._relation = relation
        self.groups = Groups(by_start)
        self.given_up = 0

    def add(self, inputs: Records) -> None:
        """Add groups in time order."""
        self.groups.add(**{name: getattr(inputs, name) for name in self.groups.given})

    def give_up(self, before_ms: int) -> Judged:
        """Give up groups whose wait has ended; they are missing."""
        start = max(self.given_up, self.groups.first)
        end = self.groups.until(before_ms - self._relation.give_up_ms, start)
        self.given_up = end
        numbers = np.arange(start, end)
        numbers = numbers[self.groups.of("state", numbers) == OPEN]
        self.groups.set_state(numbers, MISSING)
        count = len(numbers) if self._relation.kind != "filter" else 0
        return self.said(LOST, numbers[:count])

    def said(self, verdict: int, numbers: Ints) -> Judged:
        """The same verdict for several groups."""
        return Judged(
            np.full(len(numbers), verdict, np.uint8),
            self.groups.of("hash", numbers),
            self.groups.of("time_ms", numbers),
            np.full(len(numbers), NONE_MS, np.int64),
            self.groups.of("place", numbers),
            self.groups.of("offset", numbers),
            self.groups.of("by", numbers),
            np.zeros(len(numbers), np.int64),
        )

    def forget(self, before_ms: int) -> None:
        """Remove groups that outputs no longer match."""
        end = self.groups.until(before_ms - self._relation.remember_ms, self.groups.first)
        self.groups.forget(min(end, self.given_up))

    def keep(self, limit: int) -> None:
        """Keep only identities whose hash is below a limit."""
        given_up = self.given_up - self.groups.first
        hash_ = self.groups.column("hash", self.groups.first, self.groups.end)
        kept_of_these = int((hash_[: max(0, given_up)] < np.uint64(limit)).sum())
        self.groups.keep(limit)
        self.given_up = self.groups.first + kept_of_these

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        """The complete state, for `restore`."""
        given_up = max(0, self.given_up - self.groups.first)
        groups = {f"group_{name}": column for name, column in self.groups.saved().items()}
        return {"given_up": np.array([given_up])} | groups

    def restore(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Restore saved state."""
        self.groups.restore({name: saved[f"group_{name}"] for name in self.groups.saved()})
        self.given_up = self.groups.first + int(saved["given_up"][0])
