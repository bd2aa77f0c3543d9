"""Which seconds of a run are late, and where the time of one second went. Pure.

Used by analysis/attribution.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import median

from analysis.room import (
    NOTHING,
    Use,
    Uses,
    added,
    others_cores,
    pressure_share,
    steal_share,
    waiting_share,
)
from schemas.protocol import MACHINE

GENERATOR, BROKER, PIPELINE, EVALUATOR = "generator", "broker", "pipeline", "evaluator"
DEVIATIONS = 6
LEAST_MS, LEAST_SHARE = 20.0, 0.5
NORMAL = 1.4826  # standard deviation of a normal distribution from half of its interquartile range
OF_FEW = 5
LEAST_SECONDS = 8  # minimum for a level
GOOD_PART, GOOD_WAIT = 0.4, 0.33
BEHIND_MS = 2_000
MOST_BACK_S = 60
OTHERS_SHARE, STEAL_SHARE = 0.15, 0.05  # of the machine's processor time, in the seconds before
OTHERS_SHARE_OF_RUN = 0.10
WAITED_SHARE, PRESSURE_SHARE = 0.2, 0.6
MANY_PARTS = 3
IDLE_SHARE = 0.1
BUSY_CORES = 0.9
CAUGHT_UP_SHARE = 0.25  # of the machine's cores

Place = tuple[str, str]  # pipeline, stage
BySecond = Mapping[int, float]


@dataclass(frozen=True)
class Evidence:
    """Evidence for each second of the measured phase. Seconds are epoch seconds.

    event_time_ms, latest_ms: 95th percentiles of latency by second of output. send_ms: of the send
    delay by second of schedule; allowed_send_ms: the workload's limit. queue_full_share: share of
    the send delays of a second for which the queue of the generator's Kafka client was full: the
    broker did not take the records. behind_ms: lag of the evaluator. uses: by part; a pipeline's
    part is its name, the broker's `broker`. others_allowed: maximum share of the processor time of
    the whole run used by others. load_end_s: from this second on no records were sent.
    """

    event_time_ms: Mapping[Place, BySecond]
    latest_ms: Mapping[Place, BySecond]
    send_ms: BySecond = field(default_factory=dict)
    allowed_send_ms: float | None = None
    queue_full_share: BySecond = field(default_factory=dict)
    behind_ms: BySecond = field(default_factory=dict)
    uses: Uses = field(default_factory=dict)
    cores: float | None = None
    others_allowed: float = OTHERS_SHARE_OF_RUN
    load_end_s: int | None = None


def late_above_ms(values: Iterable[float]) -> float | None:
    """The latency above which a second is late; None for too few seconds."""
    known = list(values)
    if len(known) < LEAST_SECONDS:
        return None
    level, spread = level_of(known)
    return level + max(DEVIATIONS * spread, LEAST_SHARE * level, LEAST_MS)


def level_of(values: Iterable[float]) -> tuple[float, float]:
    """The usual value and the standard deviation around it: the middle of the shortest interval
    that contains half of the values, and half of its length, more for few values (least median of
    squares, Rousseeuw and Leroy, 1987). Late seconds are all on one side and would shift a median
    and its deviations long before they are half of all. 0 without values."""
    known = sorted(values)
    if not known:
        return 0.0, 0.0
    half = len(known) // 2
    low, high = min(zip(known, known[half:], strict=False), key=lambda ends: ends[1] - ends[0])
    of_few = 1 + OF_FEW / max(1, len(known) - 1)
    return (low + high) / 2, NORMAL * of_few * (high - low) / 2


class Causes:
    """Finds the cause of single seconds. against_level: whether to subtract the usual level of the
    run; if not, a run that is late from beginning to end has a cause too."""

    def __init__(self, evidence: Evidence, *, against_level: bool = True) -> None:
        self._of = evidence
        self._against_level = against_level
        own_ms = (self._own_send(at) for at in evidence.send_ms)
        self._usual_send = _median(own_ms) if against_level else 0.0
        self._levels = {
            place: level_of(values.values())[0] if against_level else 0.0
            for place, values in evidence.event_time_ms.items()
        }
        self._usual_upstream = {
            place: _median(self._upstream(place, at) for at in values) if against_level else 0.0
            for place, values in evidence.event_time_ms.items()
        }

    def of(self, at: int) -> str:
        """The cause of one second, by the stage furthest above its level in it."""
        place = self._worst_place(at)
        event_ms = self._of.event_time_ms[place][at]
        above_ms = max(1.0, event_ms - self._levels[place])
        window = window_of(at, event_ms)
        own_ms = max((self._own_send(each) for each in window), default=0.0)
        send_ms = max(0.0, own_ms - self._usual_send)
        upstream_ms = max(self._upstream(place, each) for each in window)
        append_ms = upstream_ms - self._usual_upstream[place] - send_ms
        part, owner = PIPELINE, place[0]
        if append_ms >= GOOD_PART * above_ms:
            part = owner = BROKER
        elif send_ms >= GOOD_PART * above_ms:
            part = owner = GENERATOR
        elif self._stood_still(BROKER, window):
            part = owner = BROKER  # the pipeline was blocked on writes
        elif self._caught_up(window):
            part = owner = EVALUATOR
        if not self._waited_so_long(owner, above_ms, window):
            return part
        return MACHINE if self._lacked_cores(owner, place[0], window) else part

    def worst(self, at: int) -> float:
        """Milliseconds by which the latest stage of a second exceeds its level."""
        place = self._worst_place(at)
        return self._of.event_time_ms[place][at] - self._levels[place]

    def _worst_place(self, at: int) -> Place:
        there = [place for place, values in self._of.event_time_ms.items() if at in values]
        return max(there, key=lambda p: self._of.event_time_ms[p][at] - self._levels[p])

    def _upstream(self, place: Place, at: int) -> float:
        """From scheduled to appended: `event_time` latency minus `latest` latency."""
        event_ms = self._of.event_time_ms[place].get(at)
        latest_ms = self._of.latest_ms.get(place, {}).get(at)
        if event_ms is None or latest_ms is None:
            return 0.0
        return max(0.0, event_ms - latest_ms)

    def _own_send(self, at: int) -> float:
        """The send delay of a second that is the generator's own."""
        full_share = 0.0 if self._is_busy(at) else self._of.queue_full_share.get(at, 0.0)
        return self._of.send_ms.get(at, 0.0) * (1 - full_share)

    def _is_busy(self, at: int) -> bool:
        """Whether the generator used a whole core: its client, which sends in one thread, then
        fills its queue itself."""
        use = self._of.uses.get(GENERATOR, {}).get(at, NOTHING)
        return use.cpu_s > BUSY_CORES * use.interval_s

    def _caught_up(self, window: Sequence[int]) -> bool:
        """Whether the evaluator lagged and used cores. A lag caused by a stalled broker or
        pipeline delays nobody."""
        behind_ms = max((self._of.behind_ms.get(each, 0.0) for each in window), default=0.0)
        if behind_ms <= BEHIND_MS:
            return False
        uses = self._of.uses.get(EVALUATOR)
        if not uses or not self._of.cores:
            return True
        used = added(uses.get(at, NOTHING) for at in window)
        return used.cpu_s >= CAUGHT_UP_SHARE * self._of.cores * used.interval_s

    def _waited_so_long(self, owner: str, late_ms: float, window: Sequence[int]) -> bool:
        """Whether a part waited for cores in some second, beyond its usual wait, for at least a
        third of the delay (at most of that second), and was not merely stalled. True if its wait
        time is unknown."""
        of = self._of.uses.get(owner, {})
        waits = {at: use.waited_s for at, use in of.items() if use.waited_s is not None}
        if not waits:
            return True
        usual_s = _median(waits.values()) if self._against_level else 0.0
        beyond_s = max((waits[at] - usual_s for at in window if at in waits), default=0.0)
        enough_s = GOOD_WAIT * min(1.0, late_ms / 1000)
        return beyond_s >= enough_s and not self._stood_still(owner, window)

    def _lacked_cores(self, owner: str, pipeline: str, window: Sequence[int]) -> bool:
        """Whether a part was late because it lacked a core that it did not use itself."""
        cores, uses = self._of.cores, self._of.uses
        if not cores or MACHINE not in uses:
            return False
        use = {part: added(of.get(at, NOTHING) for at in window) for part, of in uses.items()}
        waited = waiting_share(use.get(owner, NOTHING))
        if waited is not None and waited < WAITED_SHARE:
            return False
        for recent in (window, window[-2:]):
            machine = added(uses[MACHINE].get(at, NOTHING) for at in recent)
            taken = steal_share(machine, cores) or 0.0
            others = (others_cores(uses, recent) or 0.0) / cores
            if others >= OTHERS_SHARE or taken >= STEAL_SHARE:
                return True
        return self._stack_took_them(use, pipeline)

    def _stood_still(self, owner: str, window: Sequence[int]) -> bool:
        """Whether a part was idle in a second without waiting for a core. After the load the broker
        is idle anyway."""
        of = self._of.uses.get(owner, {})
        usual_s = _median(use.cpu_s for use in of.values())
        end_s = self._of.load_end_s if owner == BROKER else None
        seconds = [of[at] for at in window if at in of and (end_s is None or at < end_s)]
        return any(
            use.cpu_s < IDLE_SHARE * usual_s and (use.waited_s or 0.0) < IDLE_SHARE * use.interval_s
            for use in seconds
        )

    def _stack_took_them(self, use: Mapping[str, Use], pipeline: str) -> bool:
        """Whether the machine is too small: it was under pressure, several parts waited, and most
        of the use was not the pipeline's."""
        machine = use[MACHINE]
        if (pressure_share(machine) or 0.0) < PRESSURE_SHARE:
            return False
        shares = [waiting_share(each) or 0.0 for part, each in use.items() if part != MACHINE]
        own_s = use.get(pipeline, NOTHING).cpu_s
        return (
            sum(share >= WAITED_SHARE for share in shares) >= MANY_PARTS
            and own_s < machine.cpu_s / 2
        )


def window_of(at: int, latency_ms: float) -> range:
    """The seconds in which outputs of a given second may have been delayed."""
    back_s = min(MOST_BACK_S, ceil(max(0.0, latency_ms) / 1000))
    return range(at - back_s - 1, at + 1)


def _median(values: Iterable[float]) -> float:
    known = list(values)
    return median(known) if known else 0.0
