"""Whether a pipeline sustained a rate: why not, by the policies of `schemas/search.py`. Pure.

refusals(observation, search) == () where it did
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from schemas.search import QueueThresholds, Search, SteadyLatency

MIN_MEDIANS = 3


@dataclass(frozen=True)
class Second:
    """One second of the measure phase. at_s: its begin, from the begin of the phase; pushed: input
    records; queue: input records that are in and not yet out at its end, None where unknown."""

    at_s: int
    pushed: int
    queue: float | None


@dataclass(frozen=True)
class StageObserved:
    """What one stage did with a step.

    medians_ms: by second of output time from the begin of the measure phase, outputs of that phase
    only; drained_s: from the end of the measure phase to the end of the second of its last output;
    missing: expected outputs that never came.
    """

    name: str
    medians_ms: dict[int, float]
    seconds: tuple[Second, ...] = ()
    drained_s: float = 0.0
    missing: int = 0


@dataclass(frozen=True)
class Observation:
    """One step as it was observed. cpu_share: mean use of all cores by the pipeline, None where
    nobody measured it; trouble: why the step itself may not be used."""

    stages: tuple[StageObserved, ...]
    intended: int = 0
    failed_sends: int = 0
    cpu_share: float | None = None
    trouble: tuple[str, ...] = ()


def refusals(observed: Observation, search: Search) -> tuple[str, ...]:
    """Why the rate was not sustained, one sentence each; empty when it was."""
    reasons = list(observed.trouble)
    if observed.failed_sends:
        reasons.append(f"{observed.failed_sends} of {observed.intended} sends failed.")
    if not observed.stages:
        reasons.append("Nothing was observed.")
    for stage in observed.stages:
        if stage.missing:
            reasons.append(f"{stage.name}: {stage.missing} outputs never came.")
        if search.policy == "steady-latency":
            reasons += _latency_refusals(stage, search.steady_latency)
        else:
            reasons += _queue_refusals(stage, search)
    share, most = observed.cpu_share, search.steady_latency.max_cpu_share
    if search.policy == "steady-latency" and share is not None and share >= most:
        reasons.append(f"Mean CPU {share:.0%} of all cores, allowed below {most:.0%}.")
    return tuple(reasons)


def resolution(search: Search, measured_s: float) -> float:
    """The largest share by which a rate may exceed the capacity and still pass as sustained.

    A system that gets (1 + x) times what it can do falls behind by x seconds every second of input;
    the median by second of output rises by x / (1 + x), the queue by x / (1 + x) of the input.
    """
    if search.policy == "steady-latency":
        undetected = search.steady_latency.max_rise
    else:
        queue = search.queue
        tolerated = {
            "queue-by-time": min(1.0, queue.tolerated_s / measured_s),
            "queue-by-count": queue.tolerated,
        }.get(search.policy, (queue.unacceptable - queue.acceptable) / 2)
        # The queue passes q^a so late that the tolerance outlasts the step, or never passes q^b.
        late = queue.acceptable / (1 - tolerated) if tolerated < 1 else 1.0
        undetected = min(queue.unacceptable, late)
    return undetected / (1 - undetected)


def rise(medians_ms: dict[int, float]) -> float:
    """How fast medians rise, seconds per second: the median of the slopes between all pairs of
    seconds (Theil-Sen), which a single pause of a garbage collector does not move. 0 for fewer than
    two seconds."""
    pairs = combinations(sorted(medians_ms.items()), 2)
    slopes = [(late - early) / (then - now) / 1000 for (now, early), (then, late) in pairs]
    return median(slopes) if slopes else 0.0


def _latency_refusals(stage: StageObserved, bounds: SteadyLatency) -> list[str]:
    medians = stage.medians_ms
    if len(medians) < MIN_MEDIANS:
        return [f"{stage.name}: outputs in {len(medians)} seconds only, no latency to judge."]
    reasons = []
    highest = max(medians.values())
    if highest >= bounds.max_median_ms:
        reasons.append(
            f"{stage.name}: median latency {highest:.0f} ms, allowed below {bounds.max_median_ms}."
        )
    steepest = max(rise(medians), rise(_later_half(medians)))
    if steepest > bounds.max_rise:
        reasons.append(f"{stage.name}: median latency rises by {1000 * steepest:.0f} ms a second.")
    if stage.drained_s >= bounds.max_drain_s:
        reasons.append(
            f"{stage.name}: drained {stage.drained_s:.0f} s after the end, "
            f"allowed below {bounds.max_drain_s:.0f} s."
        )
    return reasons


def _later_half(medians_ms: dict[int, float]) -> dict[int, float]:
    """The later half, where a slow leak shows; nothing where that is too short to tell."""
    seconds = sorted(medians_ms)
    later = seconds[len(seconds) // 2 :]
    return {second: medians_ms[second] for second in later} if len(later) >= 10 else {}


def _queue_refusals(stage: StageObserved, search: Search) -> list[str]:
    thresholds, pushed = search.queue, sum(second.pushed for second in stage.seconds)
    queues = [second.queue for second in stage.seconds if second.queue is not None]
    if not queues or len(queues) != len(stage.seconds):
        return [f"{stage.name}: its queue is not known."]
    longest = max(queues)
    if longest > thresholds.full * pushed:
        return [f"{stage.name}: the queue would be full, {longest:.0f} of {pushed} records."]
    if longest > thresholds.unacceptable * pushed:
        share = longest / pushed
        return [
            f"{stage.name}: queue of {share:.0%} of the input, above {thresholds.unacceptable:.0%}."
        ]
    complaint = _TOLERANCES[search.policy](stage.seconds, thresholds, pushed)
    return [f"{stage.name}: {complaint}"] if complaint else []


def _stretches(seconds: Sequence[Second], above: float) -> list[list[Second]]:
    """Runs of consecutive seconds with a queue above a threshold."""
    found: list[list[Second]] = []
    was_above = False
    for second in seconds:
        is_above = (second.queue or 0.0) > above
        if is_above and was_above:
            found[-1].append(second)
        elif is_above:
            found.append([second])
        was_above = is_above
    return found


def _by_time(seconds: Sequence[Second], queue: QueueThresholds, pushed: int) -> str:
    stretches = _stretches(seconds, queue.acceptable * pushed)
    longest_s = max((len(stretch) for stretch in stretches), default=0)
    if longest_s <= queue.tolerated_s:
        return ""
    return (
        f"queue above {queue.acceptable:.0%} for {longest_s} s, tolerated {queue.tolerated_s:g} s."
    )


def _by_count(seconds: Sequence[Second], queue: QueueThresholds, pushed: int) -> str:
    stretches = _stretches(seconds, queue.acceptable * pushed)
    most = max((sum(second.pushed for second in stretch) for stretch in stretches), default=0)
    tolerated = queue.tolerated * pushed
    if most <= tolerated:
        return ""
    return (
        f"{most} records pushed to a queue above {queue.acceptable:.0%}, tolerated {tolerated:.0f}."
    )


def _combined(seconds: Sequence[Second], queue: QueueThresholds, pushed: int) -> str:
    """Once above q^a, the queue is looked at again when (q^b - q^a) / 2 more records are pushed."""
    acceptable, wait = queue.acceptable * pushed, (queue.unacceptable - queue.acceptable) / 2
    left: float | None = None
    for second in seconds:
        is_above = (second.queue or 0.0) > acceptable
        if left is None:
            left = wait * pushed if is_above else None
            continue
        left -= second.pushed
        if left <= 0:
            if is_above:
                return (
                    f"queue above {queue.acceptable:.0%} again after {wait:.0%} more of the input."
                )
            left = None
    return ""


_TOLERANCES: dict[str, Callable[[Sequence[Second], QueueThresholds, int], str]] = {
    "queue-by-time": _by_time,
    "queue-by-count": _by_count,
    "queue-combined": _combined,
}
