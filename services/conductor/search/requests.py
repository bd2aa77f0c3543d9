"""Requests of the runs of a search: its steps, warm-ups of cold pipelines, and the run at a share
of the rate found. Pure.

step_request(request, planned, number, warm)     # the run of one step
verifying_request(request, rate, warm)           # the run itself
"""

from schemas import protocol
from schemas.domain import ROW_KINDS
from schemas.protocol import Judgement, Phases, RunRequest
from schemas.search import Search
from schemas.workload import needs_search
from services.conductor.search.bisection import Planned

STEP_COOL_DOWN_S = 3
# Validity rules disabled in steps: a violation would count as too much load. The run at the rate
# found applies them.
NOT_CALM = {
    "must_be_steady": False,
    "must_be_undisturbed": False,
    "max_others_share": None,
    "max_steal_share": None,
}


def can_stay_warm(request: RunRequest) -> bool:
    """Whether pipelines can serve the next step. They cannot if its traffic has event times before
    the watermark of a stateful stage, which drops such records.

    The watermark is in the future if event time runs faster than the clock. Otherwise it is at most
    now, but probe traffic has earlier event times if windows close by event time or if a window of
    the domain slides by more than a second (`probe_time_ms`).
    """
    domain = request.domain
    steps = [step for name in request.stages for step in domain.chain(name)]
    stateful = [step for step in steps if step.kind not in ROW_KINDS]
    if not stateful:
        return True
    is_fast = request.workload.content.second_ms < 1000
    closes = any(one.is_windowed and one.complete is None for one in stateful)
    slides = any(one.window.slide_s > 1 for one in domain.stages if one.window)
    return not (is_fast or closes or slides)


def step_request(request: RunRequest, planned: Planned, number: int, warm: bool) -> RunRequest:
    """The run of one step: a shorter one of the same workload at another rate."""
    search = request.workload.search
    assert search is not None
    phases = Phases(
        warm_up_s=_step_warm_up_s(search, warm),
        measure_s=search.confirm_s if planned.long else search.step_s,
        cool_down_s=STEP_COOL_DOWN_S,
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


def verifying_request(request: RunRequest, rate_per_second: float, warm: bool) -> RunRequest:
    """The run itself at a share of the rate found. Cold pipelines warm up for at least as long as
    in a step."""
    search, found = request.workload.search, at_rate(request, rate_per_second)
    assert search is not None
    phases, warm_up_s = found.workload.phases, _step_warm_up_s(search, warm)
    if warm or phases.warm_up_s >= warm_up_s:
        return found
    longer = {"warm_up_s": warm_up_s, "until_steady": search.until_steady}
    phases = phases.model_copy(update=longer)
    return found.model_copy(
        update={"workload": found.workload.model_copy(update={"phases": phases})}
    )


def _step_warm_up_s(search: Search, warm: bool) -> int:
    """Pipelines that are not warm from the step before get twice the time."""
    return search.step_warm_up_s * (1 if warm else 2)


def at_rate(request: RunRequest, rate_per_second: float) -> RunRequest:
    """The same request at another rate, without the search and the thresholds on its result. JVMs
    compile as for the search."""
    thresholds = tuple(one for one in request.workload.thresholds if not needs_search(one))
    workload = request.workload.at_rate(rate_per_second)
    phases = workload.phases.model_copy(update={"optimised": True})
    changes = {"search": None, "thresholds": thresholds, "phases": phases}
    return request.model_copy(update={"workload": workload.model_copy(update=changes)})
