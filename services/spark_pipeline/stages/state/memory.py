"""What a stage remembers of one site: flow and speed of each lane and event time. Pure.

>>> memory = {}
>>> remember(memory, [Observation("lane1", 1, 1000, 60, None)], keep_ms=10_000)
[]
>>> remember(memory, [Observation("lane1", 1, 1000, None, 80.0)], keep_ms=10_000)
[(1000, 'lane1')]
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from schemas.workload import REPORT_S

Place = tuple[int, str]  # event time, epoch milliseconds, and lane


class Observation(NamedTuple):
    """What is known of one lane at one event time; either kind may still be unknown."""

    lane: str
    num_lanes: int
    observed_ms: int
    flow: int | None
    speed: float | None


class Pair(NamedTuple):
    """Flow and speed of one lane at one event time."""

    flow: int
    speed: float


Memory = dict[Place, Observation]


def remember(memory: Memory, rows: Iterable[Observation], keep_ms: int) -> list[Place]:
    """Add the observations of one batch, in any order.

    Returns the places whose second kind came with these rows, in the order in which it came. The
    first flow and the first speed of a place stay, whatever comes later. What is more than
    `keep_ms` older than the newest of the batches before is passed over; within a batch nothing is
    too old, for all flows of a long one may come before its speeds.
    """
    oldest_ms = _oldest_ms(memory, keep_ms)
    paired = []
    for row in rows:
        if row.observed_ms < oldest_ms:
            continue
        place = (row.observed_ms, row.lane)
        before = memory.get(place)
        memory[place] = row if before is None else _merged(before, row)
        if (before is None or pair(before) is None) and pair(memory[place]) is not None:
            paired.append(place)
    return paired


def forget(memory: Memory, keep_ms: int) -> None:
    """Forget what is more than `keep_ms` older than the newest."""
    oldest_ms = _oldest_ms(memory, keep_ms)
    for place in [place for place in memory if place[0] < oldest_ms]:
        del memory[place]


def _oldest_ms(memory: Memory, keep_ms: int) -> float:
    return max((observed_ms for observed_ms, _ in memory), default=-math.inf) - keep_ms


def pair(observation: Observation) -> Pair | None:
    """Flow and speed, if both are known."""
    if observation.flow is None or observation.speed is None:
        return None
    return Pair(observation.flow, observation.speed)


def complete_pairs(memory: Memory, start_ms: int, length_ms: int) -> list[Pair]:
    """The pairs of a window if each of its lanes has one for every second, or else none."""
    inside = [
        each for (time_ms, _), each in memory.items() if start_ms <= time_ms < start_ms + length_ms
    ]
    pairs = [found for found in map(pair, inside) if found is not None]
    reports = length_ms // (1000 * REPORT_S)
    most = max((each.num_lanes for each in inside), default=0)
    return pairs if inside and len(pairs) == most * reports else []


def _merged(before: Observation, row: Observation) -> Observation:
    return before._replace(
        flow=row.flow if before.flow is None else before.flow,
        speed=row.speed if before.speed is None else before.speed,
    )
