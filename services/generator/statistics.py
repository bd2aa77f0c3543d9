"""How well the generator kept to its schedule, per second of the load. Pure.

A second answers for the records that its place in the load shape gave it: also for those that are
sent later on purpose. One thread sends, one counts deliveries, a third takes what changed since it
last asked. Every figure only grows and has one writer, so no lock is needed.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.faults import KINDS, NONE
from schemas.protocol import PhasePlan
from services.generator.curves import SECOND_US
from services.generator.recording import Int64s
from services.generator.shapes import LoadShape
from services.generator.share import Share

DELAY_STEP_US = 100


@dataclass
class SecondTally:
    """Counts of one second. delays: pairs of distinct send delays (sent - scheduled, microseconds,
    rounded down to DELAY_STEP_US) and how often each occurred, one per call that sent records."""

    second_ms: int
    phase: str
    intended: int
    sent: int = 0
    acknowledged: int = 0
    lost: int = 0
    given_up: int = 0
    delays: list[tuple[Int64s, Int64s]] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """Records given up before they were sent, and those the client could not deliver."""
        return self.lost + self.given_up

    @property
    def settled(self) -> bool:
        """Whether nothing more can change."""
        dealt_with = self.sent + self.given_up
        return min(dealt_with, self.acknowledged + self.failed) >= self.intended


@dataclass
class _Published:
    intended: int = 0
    delays: int = 0
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

    def __init__(self, shape: LoadShape, plan: PhasePlan, share: Share = Share()) -> None:  # noqa: B008
        self.totals = Totals()
        self.max_delay_us = 0
        self.faults: Counter[str] = Counter()
        self._shape = shape
        self._share = share
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

    def sent(self, seconds: NDArray[np.int32], delays_us: Int64s) -> None:
        """Count records of these seconds (-1: none, not counted) as sent with these delays."""
        if not len(seconds):
            return
        self.max_delay_us = max(self.max_delay_us, int(delays_us.max()))
        for second, picked in by_second(seconds):
            tally = self._tallies[second]
            tally.delays.append(histogram(delays_us[picked]))
            tally.sent += len(seconds[picked])

    def given_up(self, seconds: NDArray[np.int32]) -> None:
        """Count records of these seconds as failed, because they will not be sent."""
        for second, picked in by_second(seconds):
            self._tallies[second].given_up += len(seconds[picked])

    def injected(self, faults: NDArray[np.int8]) -> None:
        """Count faults among records that were sent."""
        for kind, count in enumerate(np.bincount(faults, minlength=len(KINDS)).tolist()):
            if kind != NONE and count:
                self.faults[KINDS[kind]] += count

    def delivered(self, second: int, acknowledged: int, failed: int) -> None:
        """Count what became of records of a second; -1: of none."""
        if second >= 0:
            tally = self._tallies[second]
            tally.acknowledged += acknowledged
            tally.lost += failed

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
        due, before = self._shape.due, self._share.before
        intended = before(due(start_us + SECOND_US - 1)) - before(due(start_us - 1))
        self._published[second] = _Published()
        self._tallies[second] = SecondTally(
            second_ms, self._plan.phase_of(second_ms * 1000), intended
        )

    def _change(self, second: int, tally: SecondTally) -> dict[str, Any] | None:
        before = self._published[second]
        settled = tally.settled  # before the counts are read: then they are the last ones
        now = _Published(tally.intended, len(tally.delays), tally.acknowledged, tally.failed)
        if settled:
            del self._tallies[second], self._published[second]
        else:
            self._published[second] = now
        if now == before:
            return None
        delays_us, counts = merged(tally.delays[before.delays : now.delays])
        change = {
            "intended": now.intended - before.intended,
            "sent": sum(counts),
            "acknowledged": now.acknowledged - before.acknowledged,
            "failed": now.failed - before.failed,
        }
        for name, value in change.items():
            setattr(self.totals, name, getattr(self.totals, name) + value)
        head = {"phase": tally.phase, "second": tally.second_ms}
        return head | change | {"send_delays_us": delays_us, "counts": counts}


def by_second(
    seconds: NDArray[np.int32],
) -> "list[tuple[int, slice | NDArray[np.bool_]]]":
    """The distinct seconds, without -1, and which elements are of each."""
    if len(seconds) and (seconds[0] == seconds).all():
        return [(int(seconds[0]), slice(None))] if seconds[0] >= 0 else []
    return [(second, seconds == second) for second in np.unique(seconds).tolist() if second >= 0]


def histogram(delays_us: Int64s) -> tuple[Int64s, Int64s]:
    """Distinct delays rounded down to DELAY_STEP_US, ascending, and how often each occurs."""
    values, counts = np.unique(delays_us // DELAY_STEP_US, return_counts=True)
    return values * DELAY_STEP_US, counts.astype(np.int64)


def merged(histograms: list[tuple[Int64s, Int64s]]) -> tuple[list[int], list[int]]:
    """The sum of several histograms: values, ascending, and counts."""
    if not histograms:
        return [], []
    values, places = np.unique(np.concatenate([h[0] for h in histograms]), return_inverse=True)
    counts = np.bincount(places, weights=np.concatenate([h[1] for h in histograms]))
    return values.tolist(), counts.astype(np.int64).tolist()
