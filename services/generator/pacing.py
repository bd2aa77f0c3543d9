"""When to send how much, as functions of elapsed time. No clock, no Kafka.

The load is open-loop: what is due depends on time alone, never on how fast the broker answers.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from services.generator.curves import SECOND_US
from services.generator.shapes import LoadShape

TICK_US = 1_000
OWN_TIME_RECORDS_PER_TICK = 2  # up to 2 000 records/s each record leaves at its own time
SLICE_RECORDS = 50_000  # even, so that a slice begins with a flow record


@dataclass(frozen=True)
class Slice:
    """Adjacent records of one second, prepared together.

    second: from the load's start. first: number of its first record in the load; offset: number of
    that record in its second. records: how many it has; records_in_second: how many its second has.
    """

    second: int
    first: int
    offset: int
    records: int
    records_in_second: int

    @property
    def end(self) -> int:
        """Number of the record after its last."""
        return self.first + self.records


@dataclass(frozen=True)
class Tick:
    """What to do now: give up the oldest `give_up` records, then send the next `send`."""

    give_up: int
    send: int


def slices(shape: LoadShape, seconds: int, limit: int = SLICE_RECORDS) -> Iterator[Slice]:
    """A load of `seconds` seconds cut into slices of at most `limit` (even) records, in order."""
    first = 0
    for second in range(seconds):
        in_second = shape.due((second + 1) * SECOND_US - 1) - first
        for offset in range(0, in_second, limit):
            count = min(limit, in_second - offset)
            yield Slice(second, first + offset, offset, count, in_second)
        first += in_second


def plan_tick(due: int, position: int, end: int, backlog_records: int, limit: int) -> Tick:
    """What to do when `due` records are due and `position` have been dealt with.

    Of what waits, only the newest `backlog_records` may go on waiting; neither part reaches beyond
    record `end`, and at most `limit` are sent at once so that other work gets its turn.
    """
    give_up = max(0, min(due - backlog_records, end) - position)
    position += give_up
    return Tick(give_up, max(0, min(due, end, position + limit) - position))


def next_wake_us(shape: LoadShape, position: int, elapsed_us: int) -> int:
    """Elapsed time at which to look again when everything before `position` has been sent.

    The record's own time; where records come closer than ticks, not before the next tick.
    """
    own_us = int(shape.scheduled_us(np.array([position]))[0])
    crowded = shape.due(elapsed_us + TICK_US) - position > OWN_TIME_RECORDS_PER_TICK
    return max(own_us, elapsed_us + TICK_US) if crowded else own_us
