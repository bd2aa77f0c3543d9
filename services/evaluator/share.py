"""Which partitions of every topic this instance reads, when several evaluators share a run. Pure.

Records of one measurement id have one partition number in every topic of a run (one partitioner
everywhere, as many partitions), so what is to be paired is in one instance's share, and the counts
of all instances add up to what one alone would count.

>>> Share(1, 2).of({"t": (10, 20, 30, 40)})
{('t', 1): 20, ('t', 3): 40}
"""

from dataclasses import dataclass

Place = tuple[str, int]  # topic and partition
Offsets = dict[str, tuple[int, ...]]  # by topic, per partition


@dataclass(frozen=True)
class Share:
    """Every `count`th partition, from number `index` on; all of them unless told otherwise."""

    index: int = 0
    count: int = 1

    def of(self, offsets: Offsets) -> dict[Place, int]:
        """The offsets of this share's partitions."""
        return {
            (topic, partition): offset
            for topic, every in offsets.items()
            for partition, offset in enumerate(every)
            if partition % self.count == self.index
        }


ALL = Share()


def reached(positions: dict[Place, int], ends: dict[Place, int]) -> bool:
    """Whether everything before `ends` has been read."""
    return all(positions[place] >= end for place, end in ends.items())
