"""Samples identities by hash, with a share that may follow the rate. Pure.

With a limit of records per second the share is halved after a ten-second slot above it, and doubled
after a minute well below it. Slots use record times, so changes of the share depend on the topics
only. An input is counted if its hash was in the share at its time, an output without an input by
its own time.

When memory is full, the share is halved at all times (`halve`), and later doubled from a time on
(`double`).

To be exact, identities are remembered longer than they are counted: a share is applied this much
before and after its time, as long as outputs are matched.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from schemas.watch import Watch
from services.runtime.counting import Ints
from services.watcher.records import NONE_MS, Hashes

WHOLE: Final = 1 << 64  # limit that includes every hash
SLOT_MS: Final = 10_000
CALM_SLOTS: Final = 6
FAR_MS: Final = 1 << 62
CALM: Final = 0.8  # of the limit, with twice the share
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ShareChange:
    """A change of the share at a time, and the records per second that caused it."""

    from_ms: int
    share: float
    records_per_second: float


class Sampling:
    """Limits of hashes by time.

    limit: hashes must be below it to be counted or remembered at all. taken: limit for identities
    remembered now. changes: changes of the share; the publisher clears the list.
    """

    def __init__(self, watch: Watch) -> None:
        self._most = min(WHOLE, int(watch.share * WHOLE))
        self.limit = self.taken = self._most
        self.changes: list[ShareChange] = []
        self._bound = watch.max_per_second
        self._remember_ms = -(-watch.relation.remember_ms // SLOT_MS) * SLOT_MS
        self._keep_ms = 2 * max(self._remember_ms, 1000 * watch.run_s)
        self._steps = [(NONE_MS, self.limit)]  # start time, limit
        self._read_ms = NONE_MS  # earlier records may be missing above an earlier limit
        self._records: Counter[int] = Counter()  # by slot
        self._slot: int | None = None  # next slot to evaluate
        self._calm = 0

    def count(self, times: Ints) -> None:
        """Count records by time."""
        if self._bound:
            slots, counts = np.unique(times // SLOT_MS, return_counts=True)
            self._records.update(dict(zip(slots.tolist(), counts.tolist(), strict=True)))

    def ends(self, before_ms: int) -> Iterator[int]:
        """The ends of the slots up to a time. Everything earlier must be judged before the next is
        requested, which changes `taken`."""
        while True:
            if self._slot is None and self._records:
                self._slot = min(self._records)
            if self._slot is None or (self._slot + 1) * SLOT_MS > before_ms:
                return
            end_ms = (self._slot + 1) * SLOT_MS
            yield end_ms
            self._look(end_ms)

    def is_taken(self, hash_: Hashes) -> Mask:
        """Which identities are remembered now."""
        return _below(hash_, self.taken)

    def is_limited(self, hash_: Hashes) -> Mask:
        """Which identities may be counted at any time."""
        return _below(hash_, self.limit)

    def is_counted(self, hash_: Hashes, times: Ints) -> Mask:
        """Which identities are counted at their times."""
        counted = self.is_limited(hash_)
        if len(self._steps) == 1:
            return counted & _below(hash_, self._steps[0][1])
        step = np.searchsorted([since for since, _ in self._steps], times, "right") - 1
        for number in np.unique(step).tolist():
            mine = step == number
            counted[mine] &= _below(hash_[mine], self._steps[max(0, number)][1])
        return counted

    def halve(self) -> None:
        """Halve the identities remembered and counted, at all times."""
        self.limit = self.taken = self.taken // 2
        self._cut()

    def double(self, before_ms: int, read_ms: int) -> ShareChange | None:
        """After `halve`, remember twice the identities from now on, and count them from a later
        time on. before_ms: everything earlier is judged. read_ms: no later record was read. Returns
        the change; None if the limit is not the reason for the share, or no longer lower."""
        since_ms, limit = self._steps[-1]
        if limit != self.limit or limit == self._most or since_ms > before_ms:
            return None
        self._read_ms = read_ms
        self.limit = self.taken = min(2 * limit, self._most)
        from_ms = read_ms + self._remember_ms
        self._steps.append((from_ms, self.limit))
        return ShareChange(from_ms, self.limit / WHOLE, 0.0)

    def _cut(self) -> None:
        """Apply the limit to all steps, and merge those that it makes equal."""
        steps: list[tuple[int, int]] = []
        for since, limit in self._steps:
            if not steps or min(limit, self.limit) != steps[-1][1]:
                steps.append((since, min(limit, self.limit)))
        self._steps = steps

    def shares(self, start_ms: int, end_ms: int) -> list[tuple[int, float]]:
        """The shares counted between two times, each with its start."""
        ends = [since for since, _ in self._steps[1:]] + [end_ms]
        return [
            (max(start_ms, since), limit / WHOLE)
            for (since, limit), end in zip(self._steps, ends, strict=True)
            if since < end_ms and end > start_ms
        ]

    def saved(self) -> dict[str, Any]:
        """As JSON types, for `restore`."""
        state = {"limit": self.limit, "taken": self.taken, "calm": self._calm, "slot": self._slot}
        records = list(self._records.items())
        return state | {"steps": self._steps, "records": records, "read_ms": self._read_ms}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore saved state."""
        self.limit, self.taken = saved["limit"], saved["taken"]
        self._calm, self._slot = saved["calm"], saved["slot"]
        self._read_ms = saved["read_ms"]
        self._steps = [(since, limit) for since, limit in saved["steps"]]
        self._records = Counter(dict(saved["records"]))

    def _look(self, end_ms: int) -> None:
        """Adjust the share by the records of a slot, and go on to the next slot."""
        assert self._slot is not None
        rate = self._records[self._slot] * 1000 / SLOT_MS
        for slot in [record for record in self._records if record <= self._slot]:
            del self._records[slot]
        before = self._steps[-1]
        self._follow(rate, end_ms)
        if self._steps[-1] != before:
            since_ms, limit = self._steps[-1]
            self.changes.append(ShareChange(max(since_ms, end_ms), limit / WHOLE, rate))
        while len(self._steps) > 1 and self._steps[1][0] < end_ms - self._keep_ms:
            del self._steps[0]
            self._steps[0] = (NONE_MS, self._steps[0][1])  # earlier steps are merged
        self.taken = min(self.limit, self._needed(end_ms))
        self._slot += 1
        if len(self._steps) == 1 and self._steps[0][1] >= self.limit:
            self._slot = None  # until there are records

    def _follow(self, rate: float, end_ms: int) -> None:
        """Change the steps if the rate requires another share."""
        since_ms, limit = self._steps[-1]
        self._calm = self._calm + 1 if 2 * limit * rate <= CALM * self._bound * WHOLE else 0
        if limit * rate > self._bound * WHOLE:
            if since_ms > end_ms:  # drop a planned increase: the rate is too high again
                self._steps.pop()
                limit = self._steps[-1][1]
            while limit * rate > self._bound * WHOLE and limit > 1:
                limit //= 2
            if limit != self._steps[-1][1]:
                self._steps.append((end_ms, limit))
        elif self._calm >= CALM_SLOTS and since_ms <= end_ms and limit < self.limit:
            self._calm = 0
            from_ms = max(end_ms, self._read_ms) + self._remember_ms
            self._steps.append((from_ms, min(2 * limit, self.limit)))

    def _needed(self, end_ms: int) -> int:
        """The largest limit within the matching time around the slot after a time."""
        ends = [since for since, _ in self._steps[1:]] + [FAR_MS]
        first_ms, last_ms = end_ms - self._remember_ms, end_ms + SLOT_MS + self._remember_ms
        return max(
            limit
            for (since, limit), end in zip(self._steps, ends, strict=True)
            if since <= last_ms and end > first_ms
        )


def _below(hash_: Hashes, limit: int) -> Mask:
    return np.ones(len(hash_), bool) if limit >= WHOLE else hash_ < np.uint64(limit)
