"""Chooses the next rate and the result of a search: bracket, bisect, confirm; with the requests of
its runs and its events. Pure.

while step := next_step(steps, search, guess, spent_s):
    steps = [*steps, carried_out(step)]
result = search_result(steps, search)

step_request(request, planned, number, warm)     # the run of one step
verifying_request(request, rate, warm)           # the run itself
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from analysis.steadiness import reduced, slope
from schemas import protocol
from schemas.domain import ROW_KINDS
from schemas.observation import StageObserved, StepObservation
from schemas.protocol import Judgement, Phases, RunRequest
from schemas.search import Search
from schemas.workload import LEAST_COOL_DOWN_S, needs_search
from services.conductor.search.policies import resolution

SIGNIFICANT_DIGITS = 4
SLOWER = 0.25  # least increase of the generator's CPU time per record by a slower machine
HIGHEST_FACTOR = 8.0  # between two rates that no other is known to be above
# Of the precision: how far from an estimate of the rate steps are, and the last one below it.
BELOW, ABOVE, SURELY_BELOW = 0.25, 0.7, 0.5
# Validity rules disabled in steps: a violation would count as too much load. The run at the rate
# found applies them.
NOT_CALM = {
    "must_be_steady": False,
    "must_be_undisturbed": False,
    "max_others_share": None,
    "max_steal_share": None,
}


@dataclass(frozen=True)
class Planned:
    """A step to carry out. long: use the duration of a confirmation, not of a bisection step."""

    rate_per_second: float
    long: bool


@dataclass(frozen=True)
class Done:
    """A finished step; refusals: why the rate was not sustained, empty if it was; undecided: noise
    hides it; limited_by: the part that limited the rate. number: from 1; steady: whether it was
    steady while it was measured, None if unknown; moving: what was not; warm_up_s: its duration;
    by_input_alone: the pipeline kept up, but its input was late or incomplete; processed: share of
    the input that the pipeline kept up with; cpu_share: of the cores that it may use; generator_us:
    CPU time of the generator per record, microseconds; all None if unknown. cold: its pipeline was
    new, although it can be kept between steps. measured_s: its duration, 0 for that of the
    search."""

    rate_per_second: float
    long: bool
    refusals: tuple[str, ...] = ()
    undecided: bool = False
    limited_by: str = ""
    number: int = 0
    steady: bool | None = None
    moving: tuple[str, ...] = ()
    warm_up_s: int | None = None
    by_input_alone: bool = False
    processed: float | None = None
    cpu_share: float | None = None
    generator_us: float | None = None
    cold: bool = False
    measured_s: int = 0

    @property
    def planned(self) -> Planned:
        """The step as it was planned."""
        return Planned(self.rate_per_second, self.long)

    @property
    def sustained(self) -> bool:
        """Whether the rate was sustained."""
        return not self.refusals and not self.undecided


@dataclass(frozen=True)
class SoFar:
    """A search in progress. steps: judged steps; lost: run ids of steps that were not judged,
    because the conductor ended or their load never began; spent_s: duration of the search so
    far."""

    steps: tuple[Done, ...] = ()
    lost: tuple[str, ...] = ()
    spent_s: float = 0.0

    @property
    def next_number(self) -> int:
        """Number of the next step, from 1; lost steps keep theirs."""
        return len(self.steps) + len(self.lost) + 1


@dataclass(frozen=True)
class SustainableRate:
    """The sustainable rate, records per second, or None if none was sustained.

    It is below the highest sustained rate by the resolution of the policy, so that it does not
    exceed the capacity. interval: contains the capacity; its upper end is the lowest rate that was
    not sustained, None if every rate was. confirmed: a long step sustained it. limit: why the next
    rate was not sustained; limited_by: the part that limited it, empty if unknown.
    """

    rate_per_second: float | None
    interval: tuple[float, float | None]
    confirmed: bool
    limit: tuple[str, ...]
    limited_by: str = ""


def next_step(
    steps: Sequence[Done], search: Search, guess_per_second: float, spent_s: float = 0.0
) -> Planned | None:
    """The next step, or None when the search is over. The last one within the budget is long, so
    that a rate it sustains is confirmed. A rate that a cold pipeline did not sustain is tried again
    with a warm one before it bounds the result. The rate found is confirmed again if the machine
    became slower since."""
    if len(steps) >= search.max_steps or spent_s >= search.budget_s:
        return None
    if steps and steps[-1].undecided and not steps[-1].long:
        return Planned(steps[-1].rate_per_second, long=True)
    if steps and _is_doubtful(steps):
        return steps[-1].planned
    # A rate that short steps sustain and a long one does not has a slow leak: use only long steps
    # from then on, first at an estimate from what the pipeline kept up with, or else at the highest
    # lower rate that a short one sustained. If short ones are as long as the others, each confirms
    # its rate.
    only_long = _leaks(steps) or search.step_s >= search.confirm_s
    low, high = _bracket(steps)
    rate: float | None
    estimate: float | None = None
    if high is not None:
        estimate = _estimate(steps, low, high, search)
        rate = _lower(low, high, search, estimate)
        if rate is None and low is not None and _needs_a_warm_step(steps, high):
            rate = high
    elif low is not None:
        rate = _higher(steps, low, search)
    else:
        rate = max(_rounded(guess_per_second), search.min_rate_per_second)
        rate = min(rate, search.max_rate_per_second)
    is_last = _is_last(len(steps), search, spent_s)
    if low is not None and not _is_confirmed(steps, low, high):
        if rate is None or is_last or (only_long and estimate is None):
            near = _surely_sustained(estimate, search) if only_long and is_last else 0.0
            return Planned(max(low, near), long=True)
    elif low is not None and rate is None and slower_than(steps, steps[-1].generator_us):
        return Planned(low, long=True)
    return None if rate is None else Planned(rate, only_long or is_last)


def ended_by(steps: Sequence[Done], search: Search, spent_s: float) -> str:
    """Why a search has no next step: the bracket is narrow enough (`precision`), a rate at a bound
    (`highest rate`, `lowest rate`), or the number of steps or the time is used up (`steps`,
    `budget`)."""
    low, high = _bracket(steps)
    if high is None and low is not None and low >= search.max_rate_per_second:
        return "highest rate"
    if low is None and high is not None and high <= search.min_rate_per_second:
        return "lowest rate"
    if low is not None and high is not None and high <= low * (1 + search.precision):
        return "precision"
    if len(steps) >= search.max_steps:
        return "steps"
    return "budget" if spent_s >= search.budget_s else "precision"


def _is_last(steps: int, search: Search, spent_s: float) -> bool:
    """Whether the next step is the last that fits, at the mean duration of the steps so far."""
    if steps == 0:
        return False
    return steps + 1 >= search.max_steps or spent_s * (steps + 2) > search.budget_s * steps


def search_result(steps: Sequence[Done], search: Search) -> SustainableRate:
    """The result of the steps."""
    low, high = _bracket(steps)
    at_limit = [step for step in _refused(steps) if step.rate_per_second == high]
    limit, limited_by = (at_limit[0].refusals, at_limit[0].limited_by) if at_limit else ((), "")
    if low is None:
        return SustainableRate(
            None, (0.0, high), confirmed=False, limit=limit, limited_by=limited_by
        )
    confirmed = _is_confirmed(steps, low, high)
    unseen = resolution(search, search.confirm_s if confirmed else search.step_s)
    rate = low / (1 + unseen)
    return SustainableRate(rate, (rate, high), confirmed, limit, limited_by)


def slower_than(steps: Sequence[Done], generator_us: float | None) -> tuple[Done, float] | None:
    """The newest step that sustained the rate found, and by which share `generator_us`, the
    generator's CPU time per record, exceeds that of then: the machine became slower. None if it did
    not, or if that is unknown."""
    low, _high = _bracket(steps)
    best = next((s for s in reversed(steps) if s.sustained and s.rate_per_second == low), None)
    if best is None or not best.generator_us or generator_us is None:
        return None
    more = generator_us / best.generator_us - 1
    return (best, more) if more >= SLOWER else None


def _bracket(steps: Sequence[Done]) -> tuple[float | None, float | None]:
    """The highest sustained rate below the lowest unsustained one, and the latter. Once a long step
    was not sustained, short steps count only while no long one was sustained."""
    high = min((step.rate_per_second for step in _refused(steps)), default=None)
    sustained = [s for s in steps if s.sustained and (high is None or s.rate_per_second < high)]
    counted = (_leaks(steps) and [step for step in sustained if step.long]) or sustained
    return max((step.rate_per_second for step in counted), default=None), high


def _leaks(steps: Sequence[Done]) -> bool:
    """Whether a long step was not sustained."""
    return any(step.long for step in _refused(steps))


def _refused(steps: Sequence[Done]) -> list[Done]:
    """Steps whose rate was not sustained, except those whose repetition was: their input was late
    by chance, or the pipeline was cold."""
    sustained = {step.planned for step in steps if step.sustained}
    rates = [step.rate_per_second for step in steps if step.sustained and not step.cold]
    highest = max(rates, default=0.0)
    return [
        step
        for step in steps
        if step.refusals
        and not (step.by_input_alone and step.planned in sustained)
        and not (step.cold and step.rate_per_second <= highest)
    ]


def _needs_a_warm_step(steps: Sequence[Done], rate_per_second: float) -> bool:
    """Whether one step has tried a rate, with a cold pipeline. The second one counts."""
    tries = [step for step in steps if step.rate_per_second == rate_per_second]
    return len(tries) == 1 and tries[0].cold


def _is_doubtful(steps: Sequence[Done]) -> bool:
    """Whether the last step is to be repeated: the pipeline kept up, only its input was late or
    incomplete, which a single stall can cause. The second time it counts."""
    *before, last = steps
    again = any(each.refusals and each.planned == last.planned for each in before)
    return last.by_input_alone and not again


def _estimate(
    steps: Sequence[Done], low: float | None, high: float, search: Search
) -> float | None:
    """The highest rate that would pass as sustained, from what the pipeline kept up with in the
    newest step at the lowest rate that was not; None if unknown or below the bracket."""
    step = [step for step in _refused(steps) if step.rate_per_second == high][-1]
    if step.processed is None:
        return None
    rate = step.rate_per_second * step.processed * (1 + resolution(search, _measured(step, search)))
    rate = min(rate, high / (1 + search.precision) ** BELOW)  # it was refused by a little
    return rate if rate > (low or 0.0) else None


def _measured(step: Done, search: Search) -> int:
    """Seconds that a step has measured."""
    return step.measured_s or (search.confirm_s if step.long else search.step_s)


def _surely_sustained(estimate: float | None, search: Search) -> float:
    """A rate near an estimate that passes in spite of noise; 0 without an estimate."""
    return _rounded((estimate or 0.0) / (1 + search.precision) ** SURELY_BELOW)


def _higher(steps: Sequence[Done], low: float, search: Search) -> float | None:
    """The next rate while every one was sustained; None at the bound. A pipeline that uses a small
    share of its cores gets a rate for which they would just suffice: if that is too high, the step
    gives an estimate."""
    share = next(step.cpu_share for step in reversed(steps) if step.rate_per_second == low)
    factor = max(search.factor, min(HIGHEST_FACTOR, 1 / share)) if share else search.factor
    most = search.max_rate_per_second
    return min(_rounded(low * factor), most) if low < most else None


def _lower(low: float | None, high: float, search: Search, highest: float | None) -> float | None:
    """A rate below one that was not sustained, which narrows the bracket; None if it is narrow
    enough or at a bound. highest: an estimate of the highest rate that would pass."""
    least = search.min_rate_per_second
    if high <= (least if low is None else low * (1 + search.precision)):
        return None
    if highest is not None:
        # Both sides of the estimate make a bracket that is narrow enough.
        below, above = ((1 + search.precision) ** each for each in (BELOW, ABOVE))
        for near in (_rounded(highest / below), _rounded(highest * above)):
            if max((low or 0.0) * below, least) < near < high / below:
                return near
    if low is None:
        return max(_rounded(high / search.factor), least)
    rate = _rounded(math.sqrt(low * high))
    return rate if low < rate < high else None


def _is_confirmed(steps: Sequence[Done], low: float, high: float | None) -> bool:
    """Whether a long step sustained a rate of the bracket."""
    return any(
        step.long and step.sustained and low <= step.rate_per_second < (high or math.inf)
        for step in steps
    )


def _rounded(rate: float) -> float:
    """Round to four significant digits, for readability."""
    return float(f"{rate:.{SIGNIFICANT_DIGITS}g}")


def can_stay_warm(request: RunRequest) -> bool:
    """Whether pipelines can serve the next step. They cannot if its traffic has event times before
    the watermark of a stateful stage, which drops such records.

    The watermark is in the future if event time runs faster than the clock. Otherwise it is at most
    now. So is the event time of the probe traffic where event time closes all windows of the domain
    (`first_probe_set`). In other domains it is earlier if a window slides by more than a second or
    is closed by event time.
    """
    domain = request.domain
    steps = [step for name in request.stages for step in domain.chain(name)]
    stateful = [step for step in steps if step.kind not in ROW_KINDS]
    if not stateful:
        return True
    if request.workload.content.second_ms < 1000:
        return False
    closes = any(each.is_windowed and each.complete is None for each in stateful)
    slides = any(stage.window.slide_s > 1 for stage in domain.stages if stage.window)
    return domain.closes_by_event_time or not (closes or slides)


def step_request(
    request: RunRequest, planned: Planned, number: int, warm: bool, least_s: int = 0
) -> RunRequest:
    """The run of one step: a shorter one of the same workload at another rate. least_s: seconds
    that it measures at least."""
    search = request.workload.search
    assert search is not None
    # Windows that close because their inputs are silent have the silence in their latency.
    closing_s = request.domain.closing_s(request.stages, request.workload.content.second_ms)
    phases = Phases(
        warm_up_s=_step_warm_up_s(search, warm),
        measure_s=max(search.confirm_s if planned.long else search.step_s, least_s),
        cool_down_s=LEAST_COOL_DOWN_S + closing_s,
        until_steady=search.until_steady,
        optimised=True,
    )
    given_up_ms = int(1000 * search.steady_latency.max_drain_s)
    judgement = Judgement(
        deadline_ms=given_up_ms,
        give_up_ms=given_up_ms,
        relative_tolerance=request.workload.judgement.relative_tolerance,
    )
    workload = at_rate(request, planned.rate_per_second).workload
    changes = {
        "phases": phases,
        "judgement": judgement,
        "validity": workload.validity.model_copy(update=NOT_CALM),
        "thresholds": (),
        "kills": (),  # only of the run at a share of the rate
        "pipelines_start_s": 0,
    }
    workload = workload.model_copy(update=changes)
    return request.model_copy(
        update={
            "run_id": f"{request.run_id}-step-{number:02}",
            "step_of": request.run_id,
            "scaled": None,
            "seed": request.seed + number,
            "workload": workload,
        }
    )


def warming_request(step: RunRequest) -> RunRequest:
    """The run that warms up cold pipelines for a step. It measures for one second."""
    phases = step.workload.phases.model_copy(update={"measure_s": 1})
    workload = step.workload.model_copy(update={"phases": phases})
    return step.model_copy(
        update={"run_id": f"{step.run_id}{protocol.WARMING}", "workload": workload}
    )


def verifying_request(
    request: RunRequest, rate_per_second: float, warm: bool, least_s: int = 0
) -> RunRequest:
    """The run itself at a share of the rate found. Cold pipelines warm up for at least as long as
    in a step. least_s: seconds that it measures at least, and warms up, since its first batches are
    smaller than the later ones."""
    search, result = request.workload.search, at_rate(request, rate_per_second)
    assert search is not None
    phases, warm_up_s = result.workload.phases, _step_warm_up_s(search, warm)
    longer: dict[str, Any] = {
        "measure_s": max(phases.measure_s, least_s),
        "warm_up_s": max(phases.warm_up_s, least_s),
    }
    if not warm and longer["warm_up_s"] < warm_up_s:
        longer |= {"warm_up_s": warm_up_s, "until_steady": search.until_steady}
    phases = phases.model_copy(update=longer)
    return result.model_copy(
        update={"workload": result.workload.model_copy(update={"phases": phases})}
    )


def _step_warm_up_s(search: Search, warm: bool) -> int:
    """Pipelines that are not warm from the step before get twice the time."""
    return search.step_warm_up_s * (1 if warm else 2)


def at_rate(request: RunRequest, rate_per_second: float) -> RunRequest:
    """The same request at another rate, without the search and the thresholds on its result. JVMs
    compile as for the search."""
    thresholds = tuple(
        threshold for threshold in request.workload.thresholds if not needs_search(threshold)
    )
    workload = request.workload.at_rate(rate_per_second)
    phases = workload.phases.model_copy(update={"optimised": True})
    changes = {"search": None, "thresholds": thresholds, "phases": phases}
    return request.model_copy(update={"workload": workload.model_copy(update=changes)})


class StageDetail(TypedDict):
    """One stage in a step, as `schemas.events.StageJudged`."""

    medians_ms: list[float]
    highest_median_ms: float | None
    rise_ms_per_s: float
    rise_interval_ms_per_s: list[float]
    drained_s: float
    missing: int
    longest_queue_records: int | None
    last_queue_records: int | None


class ObservationDetail(TypedDict):
    """An observation: see StepObservation."""

    intended: int
    failed_sends: int
    cpu_share: float | None
    generator_us: float | None
    stages: dict[str, StageDetail]


class WarmUpDetail(TypedDict):
    """What the warm-up of a step said: whether it was steady while it was measured."""

    steady: bool | None
    moving: list[str]
    warm_up_s: int | None


class _JudgedDetail(WarmUpDetail):
    cold: bool
    rate_per_second: float
    measured_s: int
    sustained: bool
    undecided: bool
    by_input_alone: bool
    limited_by: str
    reasons: list[str]


class StepDetail(_JudgedDetail, ObservationDetail):
    """A judged step, as `schemas.events.SearchStepJudged`."""

    long: bool
    processed: float | None


class NumberedStep(_JudgedDetail):
    """A step in the result of a search."""

    step: int


class SearchDetail(TypedDict):
    """The result of a search, as `schemas.events.RateJudged`."""

    pipeline: str
    stages: list[str]
    policy: str
    rate_per_second: float | None
    interval_per_second: list[float | None]
    confirmed: bool
    limit: list[str]
    limited_by: str
    steps: list[NumberedStep]
    lost_steps: list[str]
    verified_at_per_second: float | None
    verified: bool
    ended_by: NotRequired[str]
    verification: NotRequired[ObservationDetail]


def step_detail(done: Done, observed: StepObservation, request: RunRequest) -> StepDetail:
    """Event detail of one step."""
    return {
        "rate_per_second": done.rate_per_second,
        "long": done.long,
        "cold": done.cold,
        "processed": done.processed,
        "measured_s": request.workload.phases.measure_s,
        "sustained": done.sustained,
        "undecided": done.undecided,
        "by_input_alone": done.by_input_alone,
        "limited_by": done.limited_by,
        "reasons": list(done.refusals),
        **_steadiness(done),
        **observation_detail(observed),
    }


def observation_detail(observed: StepObservation) -> ObservationDetail:
    """Event detail of an observation."""
    return {
        "intended": observed.intended,
        "failed_sends": observed.failed_sends,
        "cpu_share": observed.cpu_share,
        "generator_us": observed.generator_us,
        "stages": {stage.name: _stage_detail(stage) for stage in observed.stages},
    }


def result_detail(request: RunRequest, so_far: SoFar) -> SearchDetail:
    """Result of a run's search, before a run at a share of the rate has verified it."""
    search = request.workload.search
    assert search is not None
    result = search_result(so_far.steps, search)
    rate = result.rate_per_second
    return {
        "pipeline": request.pipelines[0].name,
        "stages": list(request.stages),
        "policy": search.judged_by,
        "rate_per_second": rate,
        "interval_per_second": list(result.interval),
        "confirmed": result.confirmed,
        "limit": list(result.limit),
        "limited_by": result.limited_by,
        "steps": [
            {
                "step": step.number,
                "rate_per_second": step.rate_per_second,
                "measured_s": _measured(step, search),
                "sustained": step.sustained,
                "undecided": step.undecided,
                "by_input_alone": step.by_input_alone,
                "cold": step.cold,
                "limited_by": step.limited_by,
                "reasons": list(step.refusals),
                **_steadiness(step),
            }
            for step in so_far.steps
        ],
        "lost_steps": list(so_far.lost),
        "verified_at_per_second": (
            None if rate is None else float(f"{search.verify_share * rate:.4g}")
        ),
        "verified": False,
    }


def _steadiness(step: Done) -> WarmUpDetail:
    """What the warm-up of a step said: whether it was steady while it was measured."""
    return {"steady": step.steady, "moving": list(step.moving), "warm_up_s": step.warm_up_s}


def _stage_detail(stage: StageObserved) -> StageDetail:
    queues = [second.queue for second in stage.seconds if second.queue is not None]
    rise = slope(stage.medians_ms)
    return {
        "medians_ms": list(reduced(stage.medians_ms).values()),
        "highest_median_ms": max(stage.medians_ms.values(), default=None),
        "rise_ms_per_s": round(rise.value, 1),
        "rise_interval_ms_per_s": [round(rise.low, 1), round(rise.high, 1)],
        "drained_s": stage.drained_s,
        "missing": stage.missing,
        "longest_queue_records": round(max(queues)) if queues else None,
        "last_queue_records": round(queues[-1]) if queues else None,
    }
