"""Expected outputs of the measure phase that were called missing and then forgotten, for want of
memory: which of them come after all is known, when they were due is not.

>>> forgotten = Forgotten()
>>> forgotten.add(7, np.array([1, 4]))
>>> forgotten.came(7, np.array([4, 4, 5])), forgotten.came(7, np.array([4]))
(1, 0)
"""

import numpy as np

from services.evaluator.columns import Ints

MAX_FORGOTTEN = 2_000_000  # 8 bytes each


class Forgotten:
    """Of one stage of one pipeline, MAX_FORGOTTEN at most. Every output of what is older than
    those counts as one of them, rather than that one is not told."""

    def __init__(self) -> None:
        self._by_group: dict[int, Ints] = {}
        self._count = 0
        self._unknown_before: int | None = None

    def add(self, group: int, index: Ints) -> None:
        """Note the addresses of what is forgotten of a group; groups must come in order."""
        if len(index):
            self._by_group[group] = index
            self._count += len(index)
        while self._count > MAX_FORGOTTEN:
            oldest = next(iter(self._by_group))
            self._count -= len(self._by_group.pop(oldest))
            self._unknown_before = oldest + 1

    def came(self, group: int, index: Ints) -> int:
        """How many of them these outputs of one group are; each counts once."""
        if self._unknown_before is not None and group < self._unknown_before:
            return len(index)
        known = self._by_group.get(group)
        if known is None:
            return 0
        left = np.setdiff1d(known, index)
        self._by_group[group] = left
        self._count -= len(known) - len(left)
        return len(known) - len(left)
