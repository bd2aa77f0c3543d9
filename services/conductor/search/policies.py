"""Judges whether a pipeline sustained a rate, by the policies of `schemas/search.py`. Pure.

judged(observation, search).sustained
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.steadiness import LEAST_VALUES, risen, slope
from schemas.observation import Second, StageObserved, StepObservation
from schemas.search import QueueThresholds, Search, SteadyLatency
from services.conductor.search.own_policy import Policy

MIN_MEDIANS = 3
# A latency has risen if its last third exceeds its first third by this much.
RISEN_MS, RISEN_SHARE = 50.0, 0.25
LEAST_LATER_HALF = 10
# A rate is given up early if latency rises at HOPELESS times the allowed slope, above HOPELESS_MS
# (if the pipeline is warm: a cold one may still catch up until it is above what is allowed),
# for HOPELESS_SECONDS and in so many seconds with outputs, which are further apart for windows.
HOPELESS, HOPELESS_MS, HOPELESS_SECONDS, HOPELESS_MEDIANS = 5, 1_000.0, 15, 5


@dataclass(frozen=True)
class StepVerdict:
    """refusals: why the rate was not sustained, one sentence each. undecided: there are none, but
    noise hides whether the latency rises; a longer step decides. by_cpu_alone: the pipeline kept
    up, but used more of the cores than allowed. by_input_alone: nothing is known against it, but
    its input was late or incomplete, or a service ended. processed: share of the input that its
    slowest stage kept up with, of a step whose latency rose; None otherwise."""

    refusals: tuple[str, ...] = ()
    undecided: bool = False
    by_cpu_alone: bool = False
    by_input_alone: bool = False
    processed: float | None = None


def judged(
    observed: StepObservation, search: Search, *, final: bool, own: Policy | None = None
) -> StepVerdict:
    """Judge a step. final: no longer step follows, so decide by the best estimate in spite of
    noise. own: the policy `own`, asked last, of a step of which something was observed. Raises
    PolicyError if it gives no answer."""
    reasons = list(observed.trouble)
    if observed.broken_by:
        return StepVerdict(tuple(reasons), by_input_alone=True)
    undecided = False
    if observed.failed_sends:
        reasons.append(f"{observed.failed_sends} of {observed.intended} sends failed.")
    of_input = len(reasons) if observed.stages else 0
    if not observed.stages and not reasons:
        reasons.append("Nothing was observed.")
    for stage in observed.stages:
        if stage.missing:
            reasons.append(f"{stage.name}: {stage.missing} outputs are missing.")
        if search.policy == "steady-latency":
            reasons += _latency_refusals(stage, search.steady_latency)
            rises = _rises(stage.medians_ms, search.steady_latency.max_rise, final=final)
            undecided |= rises is None
            reasons += [f"{stage.name}: {rises}"] if rises else []
        elif search.policy != "own":
            reasons += _queue_refusals(stage, search)
    if own is not None and observed.stages and (refusal := own(observed)) is not None:
        reasons.append(refusal)
    by_cpu = _cpu_refusals(observed.cpu_share, search)
    undecided &= not reasons and not by_cpu
    return StepVerdict(
        (*reasons, *by_cpu),
        undecided,
        by_cpu_alone=bool(by_cpu) and not reasons,
        by_input_alone=0 < len(reasons) == of_input and not by_cpu,
        processed=_processed(observed) if reasons else None,
    )


def _processed(observed: StepObservation) -> float | None:
    """The estimate that `resolution` explains: the median by second of output rises by the share of
    the input that is left in the queue."""
    slopes = [
        slope(stage.medians_ms).value / 1000
        for stage in observed.stages
        if len(stage.medians_ms) >= MIN_MEDIANS and _has_risen(stage.medians_ms)
    ]
    steepest = max(slopes, default=0.0)
    return 1 - steepest if 0 < steepest < 1 else None


def resolution(search: Search, measured_s: float) -> float:
    """The largest share by which a rate may exceed the capacity and still pass as sustained.

    At (1 + x) times its capacity, a system falls behind by x seconds every second of input; the
    median by second of output rises by x / (1 + x), the queue by x / (1 + x) of the input.
    """
    if search.policy == "steady-latency":
        undetected = search.steady_latency.max_rise
    elif search.policy == "own":
        undetected = 0.0  # unknown: the rate is the highest that the policy let pass
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


def _cpu_refusals(share: float | None, search: Search) -> list[str]:
    most = search.steady_latency.max_cpu_share
    if search.policy != "steady-latency" or share is None or most == 1 or share < most:
        return []
    return [
        f"Mean CPU {share:.0%} of the cores that the pipeline may use, allowed below {most:.0%}."
    ]


def inapplicable(search: Search, observed: StepObservation) -> str:
    """Why a rule of the policy cannot be applied to a step, in one sentence; empty if all can."""
    most = search.steady_latency.max_cpu_share
    if search.policy != "steady-latency" or most == 1 or observed.cpu_share is not None:
        return ""
    return (
        f"The limit of {most:.0%} of the cores (search.steady_latency.max_cpu_share) cannot be "
        "applied: the processor time of the pipeline was not measured, as on a cluster or of a "
        "program that Tidegauge did not start; 1 searches without it."
    )


def enough_s(observed: StepObservation, measured_s: int, most_s: int, *, kept_up: bool) -> int:
    """How long the steps of a pipeline with long batches have to be, seconds, to show a trend: for
    LEAST_VALUES medians, and, as a batch may have several, as many times the latency of a rate that
    it kept up with. most_s: of any step."""
    needed = [0.0]
    for medians in (stage.medians_ms for stage in observed.stages if stage.medians_ms):
        if len(medians) < LEAST_VALUES:
            needed.append((LEAST_VALUES + 1) * measured_s / len(medians))
        if kept_up:
            needed.append(LEAST_VALUES * max(medians.values()) / 1000)
    return min(math.ceil(max(needed)), most_s)


def hopeless(medians_ms: dict[int, float], max_rise: float, above_ms: float = HOPELESS_MS) -> bool:
    """Whether a rate is clearly unsustainable, so that the step can end: the latest medians are
    above this one and rise much faster than allowed."""
    seconds = sorted(medians_ms)
    newest = [second for second in seconds if second > seconds[-1] - HOPELESS_SECONDS]
    newest = max(newest, seconds[-HOPELESS_MEDIANS:], key=len)
    latest = {second: medians_ms[second] for second in newest}
    if len(latest) < HOPELESS_MEDIANS or min(latest.values()) < above_ms:
        return False
    if newest[-1] - newest[0] < HOPELESS_SECONDS - 1:
        return False
    return slope(latest).low / 1000 > HOPELESS * max_rise


def _rises(medians_ms: dict[int, float], max_rise: float, *, final: bool) -> str | None:
    """How fast latency rises, if too fast; empty if it does not, None if noise hides it. A slope
    counts as noise unless the level has risen too."""
    if len(medians_ms) < MIN_MEDIANS:
        return ""
    later = _later_half(medians_ms)
    whole, rest = slope(medians_ms), slope(later)
    has_risen = _has_risen(medians_ms)
    for part, of in ((whole, medians_ms), (rest, later)):
        if part.low / 1000 > max_rise and _has_risen(of):
            return f"median latency rises by {part.value:.0f} ms a second."
    if final:  # a pipeline with long batches has so few medians that they show only a clear rise
        is_shown = has_risen and len(medians_ms) >= LEAST_VALUES
        too_fast = is_shown and whole.value / 1000 > max_rise
        return f"median latency rises by {whole.value:.0f} ms a second." if too_fast else ""
    is_sure = whole.high / 1000 <= max_rise
    return "" if is_sure or not (has_risen or whole.value / 1000 > max_rise) else None


def _has_risen(medians_ms: dict[int, float]) -> bool:
    first, by = risen(medians_ms)
    return by > max(RISEN_MS, RISEN_SHARE * first)


def _latency_refusals(stage: StageObserved, bounds: SteadyLatency) -> list[str]:
    medians = stage.medians_ms
    if len(medians) < MIN_MEDIANS:
        return [f"{stage.name}: outputs in only {len(medians)} seconds, too few to judge latency."]
    reasons = []
    highest = max(medians.values())
    if highest >= bounds.max_median_ms:
        reasons.append(
            f"{stage.name}: median latency {highest:.0f} ms, allowed below {bounds.max_median_ms}."
        )
    if stage.drained_s >= bounds.max_drain_s:
        reasons.append(
            f"{stage.name}: drained {stage.drained_s:.0f} s after the end, "
            f"allowed below {bounds.max_drain_s:.0f} s."
        )
    return reasons


def _later_half(medians_ms: dict[int, float]) -> dict[int, float]:
    """The later half, where a slow leak shows; empty if it is too short."""
    seconds = sorted(medians_ms)
    later = seconds[len(seconds) // 2 :]
    return (
        {second: medians_ms[second] for second in later} if len(later) >= LEAST_LATER_HALF else {}
    )


def _queue_refusals(stage: StageObserved, search: Search) -> list[str]:
    thresholds, pushed = search.queue, sum(second.pushed for second in stage.seconds)
    queues = [second.queue for second in stage.seconds if second.queue is not None]
    if not queues or len(queues) != len(stage.seconds):
        return [f"{stage.name}: its queue length is unknown."]
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
    """Sequences of consecutive seconds with a queue above a threshold."""
    result: list[list[Second]] = []
    was_above = False
    for second in seconds:
        is_above = (second.queue or 0.0) > above
        if is_above and was_above:
            result[-1].append(second)
        elif is_above:
            result.append([second])
        was_above = is_above
    return result


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
    """Once above q^a, the queue is checked again after (q^b - q^a) / 2 more pushed records."""
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
