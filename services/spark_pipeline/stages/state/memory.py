"""What a stage remembers of one site: flow and speed of each lane and event time. Pure.

>>> memory = {}
>>> remember(memory, [Observation("lane1", 1, 1000, 60, None)], keep_ms=10_000)
[]
>>> remember(memory, [Observation("lane1", 1, 1000, None, 80.0)], keep_ms=10_000)
[(1000, 'lane1')]
"""

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
    """Add observations and forget what is more than `keep_ms` older than the newest.

    Returns the places whose second kind came with these rows, in the order in which it came. The
    first flow and the first speed of a place stay, whatever comes later. What is too old already
    is passed over.
    """
    newest_ms = max((observed_ms for observed_ms, _ in memory), default=None)
    paired = []
    for row in rows:
        if newest_ms is not None and row.observed_ms < newest_ms - keep_ms:
            continue
        newest_ms = row.observed_ms if newest_ms is None else max(newest_ms, row.observed_ms)
        place = (row.observed_ms, row.lane)
        before = memory.get(place)
        memory[place] = row if before is None else _merged(before, row)
        if (before is None or pair(before) is None) and pair(memory[place]) is not None:
            paired.append(place)
    for place in [place for place in memory if place[0] < (newest_ms or 0) - keep_ms]:
        del memory[place]
    return [place for place in paired if place in memory]


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
