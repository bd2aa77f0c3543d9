"""How well the generator kept to its schedule, per second of scheduled time. Pure.

One thread sends and counts; another takes what changed since it last asked. Every figure of a
tally only grows, and a tally's list of delays is only appended to, so no lock is needed.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schemas.protocol import PhasePlan
from services.generator.curves import SECOND_US
from services.generator.shapes import LoadShape, records_between

DELAY_STEP_US = 100


@dataclass
class SecondTally:
    """Counts of one second. delays_us: sent - scheduled of each record handed to the client."""

    second_ms: int
    phase: str
    intended: int
    acknowledged: int = 0
    failed: int = 0
    delays_us: list[int] = field(default_factory=list)

    def delivered(self, error: object, _message: object) -> None:
        """Delivery callback of a record of this second."""
        if error is None:
            self.acknowledged += 1
        else:
            self.failed += 1


@dataclass
class _Published:
    intended: int = 0
    sent: int = 0
    acknowledged: int = 0
    failed: int = 0


@dataclass
class Totals:
    """Sums over a load."""

    intended: int = 0
    sent: int = 0
    acknowledged: int = 0
    failed: int = 0


class Statistics:
    """Tallies of a load, opened as its seconds come and dropped when nothing more can change."""

    def __init__(self, shape: LoadShape, plan: PhasePlan) -> None:
        self.totals = Totals()
        self._shape = shape
        self._plan = plan
        self._opened = 0
        self._tallies: dict[int, SecondTally] = {}
        self._published: dict[int, _Published] = {}

    def open_until(self, elapsed_us: int) -> None:
        """Open every second of the load that has begun: what is due counts as intended even when
        it is never sent."""
        while self._opened * SECOND_US <= elapsed_us and self._opened < self._plan.phases.total_s:
            self._open(self._opened)
            self._opened += 1

    def tally(self, second: int) -> SecondTally:
        """The tally of a second (from the load's start) that has begun. Raises KeyError."""
        return self._tallies[second]

    def take_changes(self, now_ms: int | None) -> list[dict[str, Any]]:
        """Fields of one event per second in which something changed since the last call.

        Only seconds that are over at `now_ms`, so that an event counts a whole second at once;
        None takes all.
        """
        events = []
        for second, tally in list(self._tallies.items()):
            if now_ms is not None and tally.second_ms + 1000 > now_ms:
                continue
            event = self._change(second, tally)
            if event:
                events.append(event)
        return events

    def _open(self, second: int) -> None:
        start_us = second * SECOND_US
        second_ms = self._plan.load_start_ms + second * 1000
        intended = records_between(self._shape, start_us, start_us + SECOND_US)
        self._published[second] = _Published()
        self._tallies[second] = SecondTally(
            second_ms, self._plan.phase_of(second_ms * 1000), intended
        )

    def _change(self, second: int, tally: SecondTally) -> dict[str, Any] | None:
        before = self._published[second]
        sent = len(tally.delays_us)
        now = _Published(tally.intended, sent, tally.acknowledged, tally.failed)
        if now.acknowledged + now.failed >= now.intended:
            del self._tallies[second], self._published[second]
        else:
            self._published[second] = now
        if now == before:
            return None
        delays_us, counts = histogram(tally.delays_us[before.sent : sent])
        change = {
            "intended": now.intended - before.intended,
            "sent": now.sent - before.sent,
            "acknowledged": now.acknowledged - before.acknowledged,
            "failed": now.failed - before.failed,
        }
        for name, value in change.items():
            setattr(self.totals, name, getattr(self.totals, name) + value)
        head = {"phase": tally.phase, "second": tally.second_ms}
        return head | change | {"send_delays_us": delays_us, "counts": counts}


def histogram(delays_us: list[int]) -> tuple[list[int], list[int]]:
    """Distinct delays rounded down to DELAY_STEP_US, ascending, and how often each occurs."""
    floored = np.array(delays_us, dtype=np.int64) // DELAY_STEP_US * DELAY_STEP_US
    values, counts = np.unique(floored, return_counts=True)
    return values.tolist(), counts.tolist()
