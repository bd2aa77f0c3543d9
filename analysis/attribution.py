"""Attributes the late seconds of a run to the generator, the broker, the pipeline, the evaluator or
the machine. Pure; uses per-second evidence that the run collected.

    found = attribute(evidence)
    found.disturbed, found.by, found.said

A second of output time is late if the 95th percentile of a stage's outputs in it, counted from the
scheduled time, is above the run's own level (analysis/lateness.py): the middle of the shortest
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

from analysis.lateness import (
    BROKER,
    EVALUATOR,
    GENERATOR,
    LEAST_SECONDS,
    PIPELINE,
    STEAL_SHARE,
    Causes,
    Evidence,
    late_above_ms,
    window_of,
)
from analysis.room import added, others_cores, steal_share
from schemas.protocol import MACHINE

PARTS = (GENERATOR, BROKER, PIPELINE, EVALUATOR, MACHINE)
FOLLOWS_S = 3
# A run is disturbed by this many seconds, or this share of them, with a cause outside the pipeline.
DISTURBED_SECONDS, DISTURBED_SHARE = 2, 0.05


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
    said = _sentence(attribution, evidence)
    return replace(attribution, said=said)


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
        said = f"{late} of {attribution.seconds} seconds {were} late: {named}"
    else:
        said = f"none of {attribution.seconds} seconds was late"
    others, cores = others_cores(evidence.uses), evidence.cores
    if others is not None and cores and others / cores > evidence.others_allowed:
        said += f"; processes outside the run used {others:.2f} of {cores:g} cores"
    if (stolen := _stolen_share(evidence)) > STEAL_SHARE:
        said += f"; CPU steal was {stolen:.0%}"
    head = "Disturbed" if attribution.disturbed else "Undisturbed"
    return f"{head}: {said}."
