"""Events of a search: the state of each step, and its result. Pure."""

from typing import Any

from analysis.slope import reduced, slope
from schemas.protocol import RunRequest
from services.conductor.search.bisection import Done, SoFar, found
from services.conductor.search.policies import Observation, StageObserved


def step_detail(done: Done, observed: Observation, request: RunRequest) -> dict[str, Any]:
    """Event detail of one step's RunState."""
    return {
        "rate_per_second": done.rate_per_second,
        "long": done.long,
        "measured_s": request.workload.phases.measure_s,
        "sustained": done.sustained,
        "undecided": done.undecided,
        "by_input_alone": done.by_input_alone,
        "limited_by": done.limited_by,
        "reasons": list(done.refusals),
        **_steadiness(done),
        **observation_detail(observed),
    }


def observation_detail(observed: Observation) -> dict[str, Any]:
    """Event detail of an observation."""
    return {
        "intended": observed.intended,
        "failed_sends": observed.failed_sends,
        "cpu_share": observed.cpu_share,
        "generator_us": observed.generator_us,
        "stages": {stage.name: _told_stage(stage) for stage in observed.stages},
    }


def result_detail(request: RunRequest, so_far: SoFar) -> dict[str, Any]:
    """Result of a run's search, before a run at a share of the rate has verified it."""
    search = request.workload.search
    assert search is not None
    result = found(so_far.steps, search)
    rate = result.rate_per_second
    return {
        "pipeline": request.pipelines[0].name,
        "stages": list(request.stages),
        "policy": search.policy,
        "rate_per_second": rate,
        "interval_per_second": list(result.interval),
        "confirmed": result.confirmed,
        "limit": list(result.limit),
        "limited_by": result.limited_by,
        "steps": [
            {
                "step": step.number,
                "rate_per_second": step.rate_per_second,
                "measured_s": search.confirm_s if step.long else search.step_s,
                "sustained": step.sustained,
                "undecided": step.undecided,
                "by_input_alone": step.by_input_alone,
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


def _steadiness(step: Done) -> dict[str, Any]:
    """What the warm-up of a step said: whether it was steady while it was measured."""
    return {"steady": step.steady, "moving": list(step.moving), "warm_up_s": step.warm_up_s}


def _told_stage(stage: StageObserved) -> dict[str, Any]:
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
