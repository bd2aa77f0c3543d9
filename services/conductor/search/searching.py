"""Carries out a search. Steps are separate runs on pipelines that stay warm. The requested run then
takes place at a share of the rate found, which verifies it.

Every step is published as a conclusion `search_step`, the result as `sustainable_throughput`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from analysis.lateness import BROKER
from analysis.thresholds import judged_search
from schemas.events import RateJudged, RunRequested, SearchStepJudged, SearchStepStarted
from schemas.protocol import RunRequest
from schemas.search import Search
from schemas.threshold import parse_threshold
from services.conductor.recovered_run import MOST_LOST
from services.conductor.run import Run
from services.conductor.run_state import RunState
from services.conductor.run_verdict import RunVerdict
from services.conductor.search.bisection import (
    Done,
    Planned,
    SoFar,
    ended_by,
    next_step,
    slower_than,
)
from services.conductor.search.observing import StepEvents
from services.conductor.search.policies import Judged, Observation, judged
from services.conductor.search.requests import (
    at_rate,
    can_stay_warm,
    step_request,
    verifying_request,
    warming_request,
)
from services.conductor.search.search_events import observation_detail, result_detail, step_detail
from services.conductor.settings import ConductorSettings
from services.runtime.events import Events

log = structlog.get_logger()


class Searching:
    """A run preceded by a search. `interrupted` is as for a Run.

    so_far: progress of the same search under a previous conductor.
    """

    def __init__(
        self,
        request: RunRequest,
        settings: ConductorSettings,
        events: Events,
        interrupted: Callable[[], str],
        so_far: SoFar | None = None,
    ) -> None:
        assert request.workload.search is not None
        self.request = request
        self._search: Search = request.workload.search
        self._settings = settings
        self._events = events
        self._ask = interrupted
        self._reason = ""
        self._so_far = so_far or SoFar()
        self._lost_by: tuple[str, ...] = ()  # why the last lost step did not take place
        self._warm = False
        self._ended_by = ""

    def execute(self) -> None:
        """Search, then run at the rate found. Always concludes."""
        guess = self.request.workload.load.base_rate_per_second
        began_s = time.monotonic() - self._so_far.spent_s
        while not self._interrupted():
            spent_s = time.monotonic() - began_s
            planned = next_step(self._so_far.steps, self._search, guess, spent_s)
            if planned is None:
                self._ended_by = ended_by(self._so_far.steps, self._search, spent_s)
                break
            self._carry_out(planned)
        self._verify()

    def _interrupted(self) -> str:
        self._reason = self._reason or self._ask()
        return self._reason

    def _carry_out(self, planned: Planned) -> None:
        number = self._so_far.next_number
        self._warm_up(planned.rate_per_second)
        if self._interrupted():
            return
        request = step_request(self.request, planned, number, self._warm)
        about: dict[str, Any] = {"step": number, "step_run_id": request.run_id}
        run, conclusion, observed = self._step(request)
        if self._reason:
            return
        if run.phases is None:
            self._lose(request.run_id, conclusion.reasons)
            return
        found = judged(observed, self._search, final=planned.long)
        limited_by = observed.broken_by or _limited_by(found, run)
        warm_up = conclusion.detail.get("warm_up", {})
        done = done_step(number, planned, found, limited_by, warm_up)
        done = replace(done, generator_us=observed.generator_us)
        self._so_far = replace(self._so_far, steps=(*self._so_far.steps, done))
        self._publish(
            SearchStepJudged(
                run_id=self.request.run_id,
                invalid_reasons=observed.trouble,
                **about,
                **step_detail(done, observed, request),
            )
        )

    def _warm_up(self, rate_per_second: float) -> None:
        """Warm up cold pipelines in a run that is not judged, at this rate divided by `factor`.
        Near their limit, cold pipelines would fall behind and never catch up. The first step of a
        search goes without: its rate is a guess."""
        if self._warm or not self._so_far.steps or not can_stay_warm(self.request):
            return
        planned = Planned(rate_per_second / self._search.factor, long=False)
        step = step_request(self.request, planned, self._so_far.next_number, warm=False)
        self._step(warming_request(step))

    def _step(self, request: RunRequest) -> tuple[Run, RunVerdict, Observation]:
        """Announce and carry out the run of the next step."""
        rate = request.workload.load.base_rate_per_second
        self._events.publish(
            SearchStepStarted(
                run_id=self.request.run_id,
                phase="search",
                step=self._so_far.next_number,
                step_run_id=request.run_id,
                rate_per_second=rate,
            )
        )
        self._events.publish(RunRequested(run_id=request.run_id, request=request))
        run, conclusion, observed = self._observe(request, keep=True)
        run.tell(conclusion)
        return run, conclusion, observed

    def _lose(self, step_run_id: str, reasons: tuple[str, ...]) -> None:
        """Note a step whose load never began, which says nothing about its rate. Gives up the
        search after too many of them."""
        self._so_far = replace(self._so_far, lost=(*self._so_far.lost, step_run_id))
        self._lost_by = reasons
        log.warning("search_step_lost", run_id=step_run_id, reasons=reasons)
        if len(self._so_far.lost) > MOST_LOST:
            self._reason = " ".join(reasons)

    def _observe(self, request: RunRequest, keep: bool) -> tuple[Run, RunVerdict, Observation]:
        events = StepEvents(request.run_id)
        max_rise = self._search.steady_latency.max_rise
        gives_up = bool(request.step_of) and self._warm

        def interrupted() -> str:
            """Why the step should end, including a clearly unsustainable rate."""
            return self._interrupted() or (events.hopeless(max_rise) if gives_up else "")

        run = Run(
            request,
            self._settings,
            self._events,
            interrupted,
            listen=events.add,
            warm=self._warm,
        )
        keep = keep and can_stay_warm(request)
        conclusion = run.perform(lambda state: keep and keeps_up(state))
        self._warm = keep and keeps_up(run.state)
        state = run.state
        if run.phases is None or state.load_finished is None or state.drained is None:
            broken_by = state.broken_by or (BROKER if state.broker_death else "")
            silent = Observation((), trouble=conclusion.reasons, broken_by=broken_by)
            return run, conclusion, silent
        observed = events.observation(
            run.phases,
            state.load_finished,
            state.drained,
            state.watched.cores,
            conclusion.reasons,
        )
        return run, conclusion, observed

    def _verify(self) -> None:
        """Carry out the run itself at a share of the rate found, or refuse it."""
        report = result_detail(self.request, self._so_far) | {"ended_by": self._ended_by}
        rate = report["verified_at_per_second"]
        if rate is not None and not self._interrupted():
            self._warm_up(rate)
        if self._interrupted() or rate is None:
            why = " ".join(report["limit"] or self._lost_by)
            reason = self._reason or f"No rate was sustained: {why}"
            request = at_rate(self.request, self.request.workload.load.base_rate_per_second)
            run = Run(request, self._settings, self._events, self._interrupted)
            conclusion = run.give_up(reason)
        else:
            request = verifying_request(self.request, rate, self._warm)
            run, conclusion, observed = self._observe(request, keep=False)
            reasons = judged(observed, self._search, final=True).refusals
            report |= {"verified": not reasons, "verification": observation_detail(observed)}
            if reasons and conclusion.valid:
                share = f"{self._search.verify_share:.0%}"
                because = [*reasons, *slower_machine(self._so_far.steps, observed.generator_us)]
                text = f"{share} of the rate found was not sustained: {' '.join(because)}"
                conclusion = replace(conclusion, reasons=(text,))
        self._publish(
            RateJudged(run_id=self.request.run_id, invalid_reasons=conclusion.reasons, **report)
        )
        detail = self._with_thresholds(conclusion.detail, report)
        run.tell(replace(conclusion, detail={**detail, "search": report}))

    def _with_thresholds(self, detail: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        """The detail of a conclusion, with the thresholds on the result of the search."""
        thresholds = map(parse_threshold, self.request.workload.thresholds)
        pipeline, rate = self.request.pipelines[0].name, found["rate_per_second"]
        rows = [row.as_json() for row in judged_search(thresholds, pipeline, rate)]
        return {**detail, "thresholds": [*detail.get("thresholds", ()), *rows]} if rows else detail

    def _publish(self, event: SearchStepJudged | RateJudged) -> None:
        self._events.publish(event)
        log.info(event.kind, run_id=event.run_id, **event.detail)


def slower_machine(steps: Sequence[Done], generator_us: float | None) -> list[str]:
    """That the machine became slower since the rate found was sustained, in a sentence; empty if it
    did not. generator_us: CPU time of the generator per record now."""
    found = slower_than(steps, generator_us)
    if found is None:
        return []
    step, more = found
    return [
        f"The machine became slower: the generator used {more:.0%} more CPU time per record than in"
        f" step {step.number}."
    ]


def _limited_by(found: Judged, run: Run) -> str:
    """What limited a step that was not sustained. Without late outputs there are no late seconds to
    attribute."""
    if found.by_cpu_alone:
        return run.limited_in_pipeline()
    return run.limited_by(by_input_alone=found.by_input_alone) if found.refusals else ""


def done_step(
    number: int, planned: Planned, found: Judged, limited_by: str, warm_up: Mapping[str, Any]
) -> Done:
    """A judged step. warm_up: from the conclusion of its run."""
    return Done(
        planned.rate_per_second,
        planned.long,
        found.refusals,
        found.undecided,
        limited_by,
        number,
        warm_up.get("steady"),
        tuple(warm_up.get("moving", ())),
        warm_up.get("seconds"),
        found.by_input_alone,
    )


def keeps_up(state: RunState) -> bool:
    """Whether the pipelines can serve the next step: no failure, no backlog."""
    drained = state.drained
    return (
        not state.failure
        and drained is not None
        and not any(
            verdicts["missing"]
            for stages in drained.verdicts.values()
            for verdicts in stages.values()
        )
    )
