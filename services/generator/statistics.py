"""How well the generator kept its schedule, per second of the load. Pure.

A record is counted in the second of its scheduled time, even if it is sent later on purpose. One
thread sends, one at a time counts deliveries, and another takes the changes. Every figure only
grows and has one writer at a time, so no lock is needed.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.content import KINDS, NONE
from schemas.curves import SECOND_US
from schemas.load import Shape
from schemas.protocol import PhasePlan
from schemas.records import Int64s
from services.generator.dataset_plan import LoadShard
from services.generator.message_batch import MessageBatch
from services.generator.shapes import LoadShape

DELAY_STEP_US = 100


@dataclass
class SecondTally:
    """Counts of one second. delays_us: send delays (sent - scheduled) not published yet, as pairs
    of elapsed microseconds: scheduled times, and the time at which all were sent. queue_full_us:
    the part of the delays for which the client's queue was full, summed over the records."""

    second_ms: int
    phase: str
    intended: int
    sent: int = 0
    acknowledged: int = 0
    lost: int = 0
    given_up: int = 0
    queue_full_us: int = 0
    delays_us: deque[tuple[Int64s, int]] = field(default_factory=deque)

    @property
    def failed(self) -> int:
        """Records given up before they were sent, plus those the client could not deliver."""
        return self.lost + self.given_up

    @property
    def settled(self) -> bool:
        """Whether the counts are final."""
        dealt_with = self.sent + self.given_up
        return min(dealt_with, self.acknowledged + self.failed) >= self.intended


@dataclass
class _Published:
    intended: int = 0
    acknowledged: int = 0
    failed: int = 0
    queue_full_us: int = 0


@dataclass
class Totals:
    """Sums over a load."""

    intended: int = 0
    sent: int = 0
    acknowledged: int = 0
    failed: int = 0


class Statistics:
    """Tallies of a load, opened when their seconds begin and dropped when they are final."""

    def __init__(self, shape: LoadShape, plan: PhasePlan, shard: LoadShard = LoadShard()) -> None:  # noqa: B008
        self.totals = Totals()
        self.max_delay_us = 0
        self.faults: Counter[str] = Counter()
        self._shape = shape
        self._shard = shard
        self._plan = plan
        self._opened = 0
        self._tallies: dict[int, SecondTally] = {}
        self._published: dict[int, _Published] = {}

    def replan(self, plan: PhasePlan) -> None:
        """Use the phases of another plan for seconds opened from now on."""
        self._plan = plan

    def open_until(self, elapsed_us: int) -> None:
        """Open every second of the load that has begun. Due records count as intended even if they
        are never sent."""
        while self._opened * SECOND_US <= elapsed_us and self._opened < self._plan.phases.total_s:
            self._open(self._opened)
            self._opened += 1

    def sent(
        self, batch: MessageBatch, taken: slice, sent_us: int, full_since_us: int | None = None
    ) -> None:
        """Count these messages of a batch as sent at an elapsed time, without second copies.
        full_since_us: elapsed time since which the client's queue was full; None: it was not."""
        due_us = batch.due_us[taken]
        if not len(due_us):
            return
        self.max_delay_us = max(self.max_delay_us, sent_us - int(due_us[0]))
        if batch.second is not None:
            self._count_sent(batch.second, due_us, sent_us, full_since_us)
            return
        seconds = batch.seconds[taken]
        for second in np.unique(seconds).tolist():
            if second >= 0:
                self._count_sent(second, due_us[seconds == second], sent_us, full_since_us)

    def _count_sent(
        self, second: int, due_us: Int64s, sent_us: int, full_since_us: int | None
    ) -> None:
        tally = self._tallies[second]
        if full_since_us is not None:
            tally.queue_full_us += int((sent_us - np.maximum(due_us, full_since_us)).sum())
        tally.delays_us.append((due_us, sent_us))
        tally.sent += len(due_us)

    def given_up(self, seconds: NDArray[np.int32]) -> None:
        """Count records of these seconds as failed: they will not be sent."""
        for second, count in zip(*np.unique(seconds, return_counts=True), strict=True):
            if second >= 0:
                self._tallies[int(second)].given_up += int(count)

    def injected(self, faults: NDArray[np.int8]) -> None:
        """Count faults among records that were sent."""
        for kind, count in enumerate(np.bincount(faults, minlength=len(KINDS)).tolist()):
            if kind != NONE and count:
                self.faults[KINDS[kind]] += count

    def delivered(self, second: int, acknowledged: int, failed: int) -> None:
        """Count the outcome of records of a second; -1 is not counted."""
        if second >= 0:
            tally = self._tallies[second]
            tally.acknowledged += acknowledged
            tally.lost += failed

    def take_changes(self, now_ms: int | None) -> list[dict[str, Any]]:
        """Event fields for each second with changes since the last call.

        Only seconds that are over at `now_ms`, so that an event covers a whole second; None returns
        all.
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
        due, before = self._shape.due, self._shard.before
        intended = before(due(start_us + SECOND_US - 1)) - before(due(start_us - 1))
        self._published[second] = _Published()
        self._tallies[second] = SecondTally(
            second_ms, self._plan.phase_of(second_ms * 1000), intended
        )

    def _change(self, second: int, tally: SecondTally) -> dict[str, Any] | None:
        before = self._published[second]
        settled = tally.settled  # read before the counts, so that they are final
        now = _Published(tally.intended, tally.acknowledged, tally.failed, tally.queue_full_us)
        delays_us, counts = histogram(_taken(tally.delays_us))
        if settled:
            del self._tallies[second], self._published[second]
        else:
            self._published[second] = now
        if now == before and not counts:
            return None
        change = {
            "intended": now.intended - before.intended,
            "sent": sum(counts),
            "acknowledged": now.acknowledged - before.acknowledged,
            "failed": now.failed - before.failed,
        }
        for name, value in change.items():
            setattr(self.totals, name, getattr(self.totals, name) + value)
        head = {"phase": tally.phase, "second": tally.second_ms}
        delays = {"send_delays_us": delays_us, "counts": counts}
        return head | change | delays | {"queue_full_us": now.queue_full_us - before.queue_full_us}


def _taken(delays_us: deque[tuple[Int64s, int]]) -> Int64s:
    """Remove and return the current delays; more may arrive concurrently."""
    result = [np.zeros(0, np.int64)]
    for _ in range(len(delays_us)):
        due_us, sent_us = delays_us.popleft()
        result.append(sent_us - due_us)
    return np.concatenate(result)


def histogram(delays_us: Int64s) -> tuple[list[int], list[int]]:
    """Distinct delays rounded down to DELAY_STEP_US, ascending, and their counts."""
    values, counts = np.unique(delays_us // DELAY_STEP_US, return_counts=True)
    return (values * DELAY_STEP_US).tolist(), counts.tolist()


def load_summary(load: Shape, max_delay_us: int, last_error: str = "") -> tuple[str, ...]:
    """Sentences about a load: its largest send delay, the latest end of each burst, and the
    client's last error. The last record of a burst is scheduled within its duration, so it was sent
    at most the largest delay later."""
    late_ms = max(0, max_delay_us) / 1000
    sentences = [f"The largest send delay was {late_ms:.1f} ms."]
    for records, within_ms in load.bursts:
        sentences.append(
            f"Bursts of {records} records within {within_ms} ms were sent within at most "
            f"{within_ms + late_ms:.1f} ms, {late_ms:.1f} ms late."
        )
    if last_error:
        sentences.append(f"The last error of the Kafka client: {last_error}.")
    return tuple(sentences)
