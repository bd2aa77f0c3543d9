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
SLICE_RECORDS = 25_000


@dataclass(frozen=True)
class Slice:
    """Adjacent records of one second, prepared together; the slices of a load cover its time.

    second: from the load's start. first: number of its first record in the load; records: how many
    it has. end_us: elapsed time at which the next slice begins. event_second: the second of event
    time that all its records belong to; event_first, event_records: the first record of that and
    how many it has.
    """

    second: int
    first: int
    records: int
    end_us: int
    event_second: int
    event_first: int
    event_records: int

    @property
    def end(self) -> int:
        """Number of the record after its last."""
        return self.first + self.records


@dataclass(frozen=True)
class Tick:
    """What to do now: give up the oldest `give_up` records, then send the next `send`."""

    give_up: int
    send: int


def slices(
    shape: LoadShape,
    seconds: int,
    event_second_us: int = SECOND_US,
    limit: int = SLICE_RECORDS,
) -> Iterator[Slice]:
    """A load of `seconds` seconds cut into slices of at most `limit` records, in order.

    No slice reaches over a second, nor over a second of event time.
    """
    end_us = seconds * SECOND_US
    start_us, first = 0, 0
    while start_us < end_us:
        second, event_second = start_us // SECOND_US, start_us // event_second_us
        event_end_us = (event_second + 1) * event_second_us
        cut_us = min((second + 1) * SECOND_US, event_end_us, end_us)
        event_first = shape.due(event_second * event_second_us - 1)
        event_records = shape.due(event_end_us - 1) - event_first
        end = shape.due(cut_us - 1)
        while True:
            records = min(limit, end - first)
            last = first + records == end
            until_us = cut_us if last else _due_us(shape, first + records)
            yield Slice(second, first, records, until_us, event_second, event_first, event_records)
            first += records
            if last:
                break
        start_us = cut_us


def _due_us(shape: LoadShape, index: int) -> int:
    return int(shape.scheduled_us(np.array([index]))[0])


def plan_tick(due: int, later: int, backlog_records: int, limit: int) -> Tick:
    """What to do when `due` records of the slice at hand and `later` ones after it wait.

    Of what waits, only the newest `backlog_records` may go on waiting; at most `limit` are sent at
    once so that other work gets its turn.
    """
    give_up = min(max(0, due + later - backlog_records), due)
    return Tick(give_up, min(due - give_up, limit))


def next_wake_us(next_due_us: int, due_in_a_tick: int, elapsed_us: int) -> int:
    """Elapsed time at which to look again when everything that is due has been sent.

    The next record's own time; where records come closer than ticks (`due_in_a_tick` within the
    next one), not before the next tick.
    """
    crowded = due_in_a_tick > OWN_TIME_RECORDS_PER_TICK
    return max(next_due_us, elapsed_us + TICK_US) if crowded else next_due_us
