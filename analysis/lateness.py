"""Which seconds of a run are late, and where the time of one second went: attributes the late
seconds of a run to the generator, the broker, the pipeline, the evaluator or the machine. Pure;
uses per-second evidence that the run collected.

    found = attribute(evidence)
    found.disturbed, found.by, found.said

A second of output time is late if the 95th percentile of a stage's outputs in it, counted from the
scheduled time, is above the run's own level: the middle of the shortest
interval that contains half of all seconds of that stage, plus DEVIATIONS times half its length as
standard deviation; at least LEAST_MS and LEAST_SHARE of the level. It is also late if the generator
sent later than the workload allows.

The cause follows from where the time went between scheduled, sent, appended and output, in that
second and as many before it as its latency is long:

- generator: the send delay is a considerable part of the excess over the level, without the share
  of it for which the queue of the Kafka client was full and the generator used less than a core;
- broker: the time between sent and appended is, with that share, or the broker was stalled;
- evaluator: neither, and it lagged and used cores;
- pipeline: none of these, so the time went between input and output;
- machine: one of those, but it waited for a core: others or a hypervisor used the cores, and the
  part waited in the run queue. A stalled part does not wait.

Seconds without any output before a late one are late as well, except for usual gaps, such as
between two triggers. Seconds right after one whose cause is not the pipeline have the same cause
while the backlog is processed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
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
PARTS = (GENERATOR, BROKER, PIPELINE, EVALUATOR, MACHINE)
FOLLOWS_S = 3
# A run is disturbed by this many seconds, or this share of them, with a cause outside the pipeline.
DISTURBED_SECONDS, DISTURBED_SHARE = 2, 0.05


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


@dataclass(frozen=True)
class Attribution:
    """disturbed: None if too little is known. seconds: number examined; late: the cause of each
    late second; disturbed_by: parts; said: a summary in one sentence."""

    disturbed: bool | None
    seconds: int = 0
    late: Mapping[int, str] = field(default_factory=dict)
    disturbed_by: tuple[str, ...] = ()
    said: str = ""

    @property
    def by(self) -> dict[str, int]:
        """Number of late seconds per part."""
        counts = Counter(self.late.values())
        return {part: counts[part] for part in PARTS}


def attribute(evidence: Evidence) -> Attribution:
    """Find the cause of each late second, and whether the run was undisturbed."""
    seconds = sorted({at for of in evidence.event_time_ms.values() for at in of})
    if len(seconds) < LEAST_SECONDS:
        return Attribution(None, len(seconds))
    causes = Causes(evidence)
    late = _with_silence(_followed(_late(evidence, causes), causes.worst), seconds)
    disturbed_by = _disturbed_by(evidence, late, len(seconds))
    counted = len(set(seconds) | set(late))
    attribution = Attribution(bool(disturbed_by), counted, late, disturbed_by)
    text = _sentence(attribution, evidence)
    return replace(attribution, said=text)


def limited_by(evidence: Evidence, by_input_alone: bool = False) -> str:
    """What kept a run from keeping up: the most frequent cause of seconds in its later half,
    treating each as late. Empty if unknown. by_input_alone: the pipelines kept up, and the input
    was late or incomplete, perhaps in a few seconds only; late seconds then decide, if any."""
    if by_input_alone and (late := Counter(attribute(evidence).late.values())):
        return late.most_common(1)[0][0]
    seconds = sorted({at for of in evidence.event_time_ms.values() for at in of})
    causes = Causes(evidence, against_level=False)
    later = Counter(causes.of(at) for at in seconds[len(seconds) // 2 :])
    return later.most_common(1)[0][0] if later else ""


def _late(evidence: Evidence, causes: Causes) -> dict[int, str]:
    """The cause of every late second. Send delays beyond the limit count without a level: such a
    run may be late from beginning to end."""
    whole = Causes(evidence, against_level=False)
    result = {}
    for values in evidence.event_time_ms.values():
        bound_ms = late_above_ms(values.values())
        for at, value in values.items():
            if _sent_too_late(evidence, at, value):
                result[at] = whole.of(at)
            elif bound_ms is not None and value > bound_ms and at not in result:
                result[at] = causes.of(at)
    return dict(sorted(result.items()))


def _sent_too_late(evidence: Evidence, at: int, event_ms: float) -> bool:
    allowed_ms = evidence.allowed_send_ms
    if allowed_ms is None:
        return False
    return any(evidence.send_ms.get(each, 0.0) > allowed_ms for each in window_of(at, event_ms))


def _followed(late: Mapping[int, str], worst: Callable[[int], float]) -> dict[int, str]:
    """Assign the pipeline's seconds right after another part's to that part, while they do not get
    later, for at most FOLLOWS_S."""
    result: dict[int, str] = {}
    began_at: dict[int, int] = {}
    for at, cause in late.items():
        before = result.get(at - 1, PIPELINE)
        result[at], began_at[at] = cause, at
        follows = cause == PIPELINE != before and worst(at) <= worst(at - 1)
        if follows and at - began_at[at - 1] <= FOLLOWS_S:
            result[at], began_at[at] = before, began_at[at - 1]
    return result


def _with_silence(late: Mapping[int, str], seconds: Sequence[int]) -> dict[int, str]:
    """Add the seconds without any output before a late one, beyond the usual gap, with the cause of
    that second."""
    result = dict(late)
    usual = int(median(at - before for before, at in pairwise(seconds)))
    for before, at in pairwise(seconds):
        if at in late:
            result |= dict.fromkeys(range(before + usual, at), late[at])
    return dict(sorted(result.items()))


def _disturbed_by(evidence: Evidence, late: Mapping[int, str], seconds: int) -> tuple[str, ...]:
    counts = Counter(cause for cause in late.values() if cause != PIPELINE)
    enough = max(DISTURBED_SECONDS, DISTURBED_SHARE * seconds)
    result = {part for part, count in counts.items() if count >= enough}
    if counts.total() >= enough and not result:
        result.add(counts.most_common(1)[0][0])
    others = _others_share(evidence)
    if others is not None and others > evidence.others_allowed:
        result.add(MACHINE)
    if _stolen_share(evidence) > STEAL_SHARE:
        result.add(MACHINE)
    return tuple(part for part in PARTS if part in result)


def _others_share(evidence: Evidence) -> float | None:
    others = others_cores(evidence.uses)
    return others / evidence.cores if others is not None and evidence.cores else None


def _stolen_share(evidence: Evidence) -> float:
    machine = added(evidence.uses.get(MACHINE, {}).values())
    return (steal_share(machine, evidence.cores) or 0.0) if evidence.cores else 0.0


def _sentence(attribution: Attribution, evidence: Evidence) -> str:
    late = len(attribution.late)
    if late:
        by = sorted(
            ((n, part) for part, n in attribution.by.items() if n), key=lambda each: -each[0]
        )
        named = ", ".join(f"{n} by the {part}" for n, part in by)
        were = "was" if late == 1 else "were"
        text = f"{late} of {attribution.seconds} seconds {were} late: {named}"
    else:
        text = f"none of {attribution.seconds} seconds was late"
    others, cores = others_cores(evidence.uses), evidence.cores
    if others is not None and cores and others / cores > evidence.others_allowed:
        text += f"; processes outside the run used {others:.2f} of {cores:g} cores"
    if (stolen := _stolen_share(evidence)) > STEAL_SHARE:
        text += f"; CPU steal was {stolen:.0%}"
    head = "Disturbed" if attribution.disturbed else "Undisturbed"
    return f"{head}: {text}."
