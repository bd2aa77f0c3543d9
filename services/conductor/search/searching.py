"""Carries a search out: steps are runs of their own on pipelines that stay warm, and the run that
was asked for then takes place at a share of the rate found, which verifies it.

Every step is told as a conclusion `search_step`, the result as `sustainable_throughput`.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog

from schemas import protocol
from schemas.protocol import Judgement, Phases, RunRequest
from schemas.search import Search
from services.conductor.conclusion import Conclusion
from services.conductor.evidence import Evidence
from services.conductor.run import Run
from services.conductor.search.bisection import Done, Found, Planned, found, next_step
from services.conductor.search.observing import StepEvents
from services.conductor.search.policies import Observation, StageObserved, refusals, rise
from services.conductor.settings import ConductorSettings
from services.runtime.events import Events

log = structlog.get_logger()
STEP_COOL_DOWN_S = 3


class Searching:
    """A run with a search before it. `interrupted` is as for a Run."""

    def __init__(
        self,
        request: RunRequest,
        settings: ConductorSettings,
        events: Events,
        interrupted: Callable[[], str],
    ) -> None:
        assert request.workload.search is not None
        self.request = request
        self._search: Search = request.workload.search
        self._settings = settings
        self._events = events
        self._ask = interrupted
        self._reason = ""
        self._steps: list[Done] = []
        self._warm = False

    def execute(self) -> None:
        """Search, then run at the rate found. Always concludes."""
        began_s, guess = time.monotonic(), self.request.workload.load.rate_per_second
        while not self._interrupted():
            spent_s = time.monotonic() - began_s
            planned = next_step(self._steps, self._search, guess, spent_s)
            if planned is None:
                break
            self._carry_out(planned)
        self._verify(found(self._steps, self._search))

    def _interrupted(self) -> str:
        self._reason = self._reason or self._ask()
        return self._reason

    def _carry_out(self, planned: Planned) -> None:
        number = len(self._steps) + 1
        request = step_request(self.request, planned, number, self._warm)
        about = {"step": number, "step_run_id": request.run_id}
        self._events.lifecycle(
            protocol.PHASE_STARTED,
            self.request.run_id,
            phase="search",
            detail=about | {"rate_per_second": planned.rate_per_second},
        )
        self._events.lifecycle(protocol.RUN_REQUESTED, request.run_id, detail=request)
        run, conclusion, observed = self._observe(request, keep=True)
        run.tell(conclusion)
        if self._reason:
            return
        done = Done(planned.rate_per_second, planned.long, refusals(observed, self._search))
        self._steps.append(done)
        self._tell("search_step", observed.trouble, about | told(done, observed, request))

    def _observe(self, request: RunRequest, keep: bool) -> tuple[Run, Conclusion, Observation]:
        events = StepEvents(request.run_id)
        run = Run(
            request,
            self._settings,
            self._events,
            self._interrupted,
            listen=events.add,
            warm=self._warm,
        )
        conclusion = run.perform(lambda evidence: keep and keeps_up(evidence))
        self._warm = keep and keeps_up(run.evidence)
        evidence = run.evidence
        if run.phases is None or evidence.load_finished is None or evidence.drained is None:
            return run, conclusion, Observation((), trouble=conclusion.reasons)
        observed = events.observation(
            run.phases,
            evidence.load_finished,
            evidence.drained,
            request.environment.get("cores"),
            conclusion.reasons,
        )
        return run, conclusion, observed

    def _verify(self, result: Found) -> None:
        """The run itself: at a share of the rate found, or not at all."""
        report = self._report(result)
        if self._reason or result.rate_per_second is None:
            reason = self._reason or "No rate was sustained: " + " ".join(result.limit)
            run = Run(self.request, self._settings, self._events, self._interrupted)
            conclusion = run.give_up(reason)
        else:
            rate = report["verified_at_per_second"]
            request = at_rate(self.request, rate)
            run, conclusion, observed = self._observe(request, keep=False)
            reasons = refusals(observed, self._search)
            report |= {"verified": not reasons, "verification": told_of(observed)}
            if reasons and conclusion.valid:
                share = f"{self._search.verify_share:.0%}"
                text = f"The rate found is not sustained at {share} of it: {' '.join(reasons)}"
                conclusion = replace(conclusion, reasons=(text,))
        self._tell("sustainable_throughput", conclusion.reasons, report)
        run.tell(replace(conclusion, detail={**conclusion.detail, "search": report}))

    def _report(self, result: Found) -> dict[str, Any]:
        rate = result.rate_per_second
        share = self._search.verify_share
        return {
            "pipeline": self.request.pipelines[0].name,
            "stages": list(self.request.stages),
            "policy": self._search.policy,
            "rate_per_second": rate,
            "interval_per_second": list(result.interval),
            "confirmed": result.confirmed,
            "limit": list(result.limit),
            "steps": [
                {
                    "rate_per_second": step.rate_per_second,
                    "sustained": step.sustained,
                    "reasons": list(step.refusals),
                }
                for step in self._steps
            ],
            "verified_at_per_second": None if rate is None else float(f"{share * rate:.4g}"),
            "verified": False,
        }

    def _tell(self, kind: str, reasons: tuple[str, ...], detail: dict[str, Any]) -> None:
        self._events.conclusion(kind, self.request.run_id, reasons, detail)
        log.info(kind, run_id=self.request.run_id, **detail)


def keeps_up(evidence: Evidence) -> bool:
    """Whether the pipelines are fit for the next step: nothing failed, nothing is behind."""
    drained = evidence.drained
    return (
        not evidence.failure
        and drained is not None
        and not any(
            verdicts["missing"]
            for stages in drained.verdicts.values()
            for verdicts in stages.values()
        )
    )


def step_request(request: RunRequest, planned: Planned, number: int, warm: bool) -> RunRequest:
    """The run of one step: a shorter one of the same workload at another rate. Pipelines that are
    not warm from a step before get twice the time for it."""
    search = request.workload.search
    assert search is not None
    phases = Phases(
        warm_up_s=search.step_warm_up_s * (1 if warm else 2),
        measure_s=search.confirm_s if planned.long else search.step_s,
        cool_down_s=STEP_COOL_DOWN_S,
    )
    given_up_ms = int(1000 * search.steady_latency.max_drain_s)
    judgement = Judgement(
        deadline_ms=given_up_ms,
        give_up_ms=given_up_ms,
        relative_tolerance=request.workload.judgement.relative_tolerance,
    )
    workload = at_rate(request, planned.rate_per_second).workload.model_copy(
        update={"phases": phases, "judgement": judgement}
    )
    return request.model_copy(
        update={
            "run_id": f"{request.run_id}-step-{number:02}",
            "step_of": request.run_id,
            "seed": request.seed + number,
            "workload": workload,
        }
    )


def at_rate(request: RunRequest, rate_per_second: float) -> RunRequest:
    """The same request at another rate, without the search."""
    load = request.workload.load.model_copy(update={"rate_per_second": rate_per_second})
    workload = request.workload.model_copy(update={"load": load, "search": None})
    return request.model_copy(update={"workload": workload})


def told(done: Done, observed: Observation, request: RunRequest) -> dict[str, Any]:
    """Evidence of one step as it goes on the bus."""
    return {
        "rate_per_second": done.rate_per_second,
        "long": done.long,
        "measured_s": request.workload.phases.measure_s,
        "sustained": done.sustained,
        "reasons": list(done.refusals),
        **told_of(observed),
    }


def told_of(observed: Observation) -> dict[str, Any]:
    """An observation as it goes on the bus."""
    return {
        "intended": observed.intended,
        "failed_sends": observed.failed_sends,
        "cpu_share": observed.cpu_share,
        "stages": {stage.name: _told_stage(stage) for stage in observed.stages},
    }


def _told_stage(stage: StageObserved) -> dict[str, Any]:
    medians = list(stage.medians_ms.values())
    queues = [second.queue for second in stage.seconds if second.queue is not None]
    return {
        "medians_ms": medians,
        "highest_median_ms": max(medians, default=None),
        "rise_ms_per_s": round(1000 * rise(stage.medians_ms), 1),
        "drained_s": stage.drained_s,
        "missing": stage.missing,
        "longest_queue_records": round(max(queues)) if queues else None,
        "last_queue_records": round(queues[-1]) if queues else None,
    }
