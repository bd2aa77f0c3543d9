"""Which records of a load one of several generators sends. Pure.

Instance i of n sends the records whose pair number (sequence // 2: the flow and the speed of one
lane) leaves i when divided by n. Every record belongs to exactly one instance, whatever the shape.
"""

from dataclasses import dataclass

import numpy as np

from services.generator.recording import Int64s


@dataclass(frozen=True)
class Share:
    """The share of instance `index` of `count`."""

    index: int = 0
    count: int = 1

    def before(self, sequence: int) -> int:
        """How many records below `sequence` belong to this share."""
        if self.count == 1:
            return sequence
        rounds, rest = divmod(sequence, 2 * self.count)
        return 2 * rounds + min(max(rest - 2 * self.index, 0), 2)

    def sequences(self, first: int, end: int) -> Int64s:
        """The records from `first` to `end` (exclusive) that belong to this share."""
        every = np.arange(first, end, dtype=np.int64)
        if self.count == 1:
            return every
        ours: Int64s = every[(every // 2) % self.count == self.index]
        return ours
