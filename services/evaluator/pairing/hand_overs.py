"""When the inputs of a run were handed to a pipeline, from its proxy's events (results.fetches).

An input was handed over by the first answer to a fetch that contained it or a later record of its
partition. Within a partition these times therefore rise with the offset, whatever the order in
which several clients read. If the proxy was replaced, it is unknown when the records of its first
answer of a partition were handed over, unless the proxy before it had published that. An output was
possible once all its contributing inputs had been handed over (Karimov et al., ICDE 2018,
Definition 4).
"""

from typing import Any, Final

import numpy as np

from services.evaluator.columnar.columns import UNKNOWN, Ints

MOST_TIMES: Final = 1_000_000  # of a partition, 16 bytes each; of more the older half is forgotten


class HandOvers:
    """Hand-overs to one pipeline. sources: index of each input partition, by topic and number."""

    def __init__(self, sources: dict[tuple[str, int], int]) -> None:
        self._sources = sources
        self._times = [_PartitionTimes() for _ in sources]
        self.until_ms = 0  # all before are known

    def add(self, event: dict[str, Any]) -> None:
        """Add an event of the pipeline's proxy."""
        self.until_ms = max(self.until_ms, event["until"])
        source = self._sources.get((event["topic"], event["partition"]))
        if source is not None and event["last_offsets"]:
            offsets, times = (
                np.array(event[name], np.int64) for name in ("last_offsets", "handed_ms")
            )
            self._times[source].add(offsets, times, follows_unknown=event["first"])

    def note(self, source: int, offsets: Ints, times: Ints) -> None:
        """Add the times of single records of a source, by a clock of any unit."""
        self._times[source].add(offsets, times, follows_unknown=False)

    def of(self, offsets: Ints) -> Ints:
        """When the last of the inputs of each output was handed over (epoch ms); UNKNOWN if that is
        not known. offsets: by source and output, the highest of a contributing input, or
        UNKNOWN."""
        result = np.full(offsets.shape[1], UNKNOWN, np.int64)
        unknown = np.zeros(offsets.shape[1], bool)
        for times, mine in zip(self._times, offsets, strict=True):
            contributes = mine != UNKNOWN
            if contributes.any():
                handed_ms = times.of(mine[contributes])
                unknown[contributes] |= handed_ms == UNKNOWN
                result[contributes] = np.maximum(result[contributes], handed_ms)
        result[unknown] = UNKNOWN
        return result


class _PartitionTimes:
    """Offsets and times of one partition, both ascending."""

    def __init__(self) -> None:
        self._offsets = np.empty(1024, np.int64)
        self._times_ms = np.empty(1024, np.int64)
        self._count = 0
        self._forgotten = False

    def add(self, offsets: Ints, times_ms: Ints, *, follows_unknown: bool) -> None:
        """Add what rose since the last call; offsets that were handed over before are ignored.
        follows_unknown: the first answer may hold records that were handed over before."""
        last = self._offsets[self._count - 1] if self._count else UNKNOWN
        if self._count and follows_unknown:
            times_ms[0] = UNKNOWN
        new = offsets > last
        offsets, times_ms = offsets[new], times_ms[new]
        if self._count + len(offsets) > MOST_TIMES:
            kept = slice(self._count // 2, self._count)
            self._offsets, self._times_ms = self._offsets[kept].copy(), self._times_ms[kept].copy()
            self._count, self._forgotten = len(self._offsets), True
        while self._count + len(offsets) > len(self._offsets):
            self._offsets = np.concatenate([self._offsets, np.empty_like(self._offsets)])
            self._times_ms = np.concatenate([self._times_ms, np.empty_like(self._times_ms)])
        end = self._count + len(offsets)
        self._offsets[self._count : end] = offsets
        self._times_ms[self._count : end] = times_ms
        self._count = end

    def of(self, offsets: Ints) -> Ints:
        """When records were handed over; UNKNOWN if they were not, or if it was forgotten."""
        known = self._offsets[: self._count]
        at = np.searchsorted(known, offsets)
        result = np.full(len(offsets), UNKNOWN, np.int64)
        has = (at < self._count) & ((at > 0) | (not self._forgotten))
        result[has] = self._times_ms[at[has]]
        return result
