"""Carries out a search. Steps are separate runs on pipelines that stay warm. The requested run then
takes place at a share of the rate found, which verifies it.

Every step is published as a conclusion `search_step`, the result as `sustainable_throughput`.

The events of one step become an Observation:

events = StepEvents(run_id)
events.add(figures)
events.observation(plan, load_finished, drained, cores, trouble)
"""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from analysis.lateness import BROKER, GENERATOR
from analysis.thresholds import judged_search
from schemas import catalogue, protocol
from schemas.events import (
    Drained,
    FigureColumns,
    LoadFinished,
    RateJudged,
    RunRequested,
    SearchStepJudged,
    SearchStepStarted,
)
from schemas.observation import Second, StageObserved, StepObservation
from schemas.percentiles import quantile
from schemas.protocol import PhasePlan, RunRequest
from schemas.search import Search
from schemas.threshold import parse_threshold
from schemas.validation_errors import DefinitionError
from services.conductor.evidence import LEAST_OF_LAST
from services.conductor.orphaned_runs import MOST_LOST
from services.conductor.run import Run
from services.conductor.run_state import RunState
from services.conductor.run_verdict import RunVerdict
from services.conductor.search.bisection import (
    Done,
    Planned,
    SearchDetail,
    SoFar,
    at_rate,
    can_stay_warm,
    ended_by,
    next_step,
    observation_detail,
    result_detail,
    slower_than,
    step_detail,
    step_request,
    verifying_request,
    warming_request,
)
from services.conductor.search.own_policy import Policy, PolicyError, own_policy
from services.conductor.search.policies import (
    HOPELESS_MS,
    HOPELESS_SECONDS,
    StepVerdict,
    enough_s,
    hopeless,
    inapplicable,
    judged,
)
from services.conductor.settings import ConductorSettings
from services.runtime.events import Events
from services.runtime.logs import get_log

# An expected output has exactly one of these verdicts; duplicate and unexpected are additional.
EXPECTED = ("exact", "wrong", "missing", "late")
MOST_LONGER = 4  # times the last step: the longest one of a pipeline with long batches
Place = tuple[str, str]  # pipeline, stage
log = get_log()


class StepEvents:
    """Counts of one run, by second: input, outputs and their latency, and the processor time of
    pipelines and generators."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._pushed: Counter[int] = Counter()
        self._out: dict[Place, Counter[int]] = defaultdict(Counter)
        self._latencies: dict[Place, dict[int, Counter[int]]] = defaultdict(
            lambda: defaultdict(Counter)
        )
        self._newest: dict[Place, dict[int, Counter[int]]] = defaultdict(
            lambda: defaultdict(Counter)
        )
        self._looked_at = 0
        self.given_up = ""  # why the step need not be observed any longer
        self._cpu: list[tuple[int, str, float, float]] = []
        self._generator_cpu: Counter[int] = Counter()  # microseconds, by time of the sample

    def add(self, figures: FigureColumns) -> None:
        """Add figures; other runs and topics are ignored."""
        topic, record = figures.topic, figures.fields
        if figures.run_id != self._run_id:
            return
        if topic == catalogue.GENERATOR:
            self._pushed[record["second"]] += record["acknowledged"]
        elif topic == catalogue.LATENCY and record["definition"] == "latest":
            place, second = (record["pipeline"], record["stage"]), record["second"]
            self._out[place][second] += sum(record["counts"])
            counts = dict(zip(record["latencies_ms"], record["counts"], strict=True))
            newest = self._newest[place]
            newest[second].update(counts)
            if len(newest) > HOPELESS_SECONDS + 1:
                del newest[min(newest)]
            if record["phase"] == "measure":
                self._latencies[place][second].update(counts)
        elif topic == catalogue.RESOURCES:
            name = record["pipeline"] or record["service"]
            if record["pipeline"] or name == protocol.MACHINE:
                sample = (name, record["cpu_seconds"], record["interval_s"])
                self._cpu.append((record["time"], *sample))
            elif name == GENERATOR:
                self._generator_cpu[record["time"]] += round(1e6 * record["cpu_seconds"])

    def hopeless(self, max_rise: float, above_ms: float) -> str:
        """Why this rate need not be observed any longer, or an empty string. Checked once for each
        second of output. above_ms: less than all the latest medians."""
        latest = max((max(seconds) for seconds in self._newest.values()), default=0)
        if not self.given_up and latest != self._looked_at:
            self._looked_at = latest
            for stage in self._newest_medians():
                if hopeless(stage.medians_ms, max_rise, above_ms):
                    self.given_up = f"The median latency of {stage.name} keeps rising."
                    break
        return self.given_up

    def was_given_up(self, failure: str) -> bool:
        """Whether a run failed by this alone."""
        return bool(failure) and failure == self.given_up

    def _newest_medians(self) -> Iterator[StageObserved]:
        """The medians of each stage in its newest seconds with outputs."""
        for (_pipeline, stage), seconds in self._newest.items():
            whole = sorted(seconds)[:-1]
            medians = {at // 1000: float(quantile(seconds[at], 0.5) or 0) for at in whole}
            yield StageObserved(stage, medians)

    def unfinished(self, trouble: tuple[str, ...], broken_by: str) -> StepObservation:
        """The observation of a step that ended early. Only of one that was given up something is
        known: how fast latency rose."""
        stages = tuple(self._newest_medians()) if self.given_up else ()
        return StepObservation(stages, trouble=trouble, broken_by=broken_by)

    def observation(
        self,
        plan: PhasePlan,
        load: LoadFinished,
        drained: Drained,
        cores: float | None,
        trouble: tuple[str, ...] = (),
        *,
        core_limit: float | None = None,
    ) -> StepObservation:
        """The observation. cores: of the pipelines' machine, None if unknown; core_limit: how many
        of them they may use, None for all."""
        stages = tuple(
            self._stage(plan, (pipeline, stage), verdicts)
            for pipeline, of_stages in drained.verdicts.items()
            for stage, verdicts in of_stages.items()
        )
        share = self._cpu_share(plan, cores, core_limit)
        used_us = self._generator_us(plan)
        return StepObservation(
            stages, load.intended, load.failed, share, trouble, generator_us=used_us
        )

    def _stage(self, plan: PhasePlan, place: Place, verdicts: Mapping[str, int]) -> StageObserved:
        """Without the latencies of the few outputs that the last window of the cool-down may have
        in the measure phase, as of keys without a newer record: they waited for the window."""
        start_ms, end_ms = plan.measure_start_ms, plan.measure_end_ms
        by_second = self._latencies[place]
        usual = median(counts.total() for counts in by_second.values()) if by_second else 0
        medians = {
            (second - start_ms) // 1000: float(quantile(counts, 0.5) or 0)
            for second, counts in sorted(by_second.items())
            if second < end_ms or counts.total() >= LEAST_OF_LAST * usual
        }
        last_ms = max(by_second, default=end_ms - 1000) + 1000
        return StageObserved(
            name=place[1],
            medians_ms=medians,
            seconds=tuple(self._seconds(plan, place, verdicts)),
            drained_s=max(0.0, (last_ms - end_ms) / 1000),
            missing=verdicts["missing"],
        )

    def _seconds(
        self, plan: PhasePlan, place: Place, verdicts: Mapping[str, int]
    ) -> Iterator[Second]:
        """Queue of the stage in input records: an output stands for the ratio of input records to
        expected outputs in the measure phase."""
        start_ms, end_ms = plan.measure_start_ms, plan.measure_end_ms
        expected = sum(verdicts[verdict] for verdict in EXPECTED)
        pushed = sum(n for second, n in self._pushed.items() if start_ms <= second < end_ms)
        ratio = pushed / expected if expected else None
        total_in = total_out = 0
        for second_ms in range(plan.load_start_ms, end_ms, 1000):
            total_in += self._pushed[second_ms]
            total_out += self._out[place][second_ms]
            if second_ms >= start_ms:
                queue = None if ratio is None else max(0.0, total_in - ratio * total_out)
                at_s = (second_ms - start_ms) // 1000
                yield Second(at_s, self._pushed[second_ms], queue)

    def _generator_us(self, plan: PhasePlan) -> float | None:
        """CPU time of the generator per record in the measure phase."""

        def measured(counts: Counter[int]) -> int:
            within = (plan.measure_start_ms, plan.measure_end_ms)
            return sum(n for at_ms, n in counts.items() if within[0] <= at_ms < within[1])

        used_us, pushed = measured(self._generator_cpu), measured(self._pushed)
        return used_us / pushed if used_us and pushed else None

    def _cpu_share(
        self, plan: PhasePlan, cores: float | None, core_limit: float | None
    ) -> float | None:
        """Share used of the cores available to the pipelines: all minus other use of the machine,
        within their limit."""
        samples = [
            sample
            for sample in self._cpu
            if plan.measure_start_ms <= sample[0] < plan.measure_end_ms
        ]
        used: dict[str, float] = {}
        for name in {name for _time, name, _cpu, _interval in samples}:
            of_name = [(cpu, interval) for _t, of, cpu, interval in samples if of == name]
            used[name] = sum(cpu for cpu, _ in of_name) / sum(interval for _, interval in of_name)
        machine = used.pop(protocol.MACHINE, None)
        own = sum(used.values())
        if not cores or not used:
            return None
        left = cores - max(0.0, machine - own) if machine is not None else cores
        left = left if core_limit is None else min(left, core_limit)
        return min(1.0, own / left) if left > 0 else 1.0


@dataclass(frozen=True)
class ObservedRun:
    """An ended run of a search, its unpublished conclusion, what was observed of it, and whether
    its pipelines are kept. inapplicable: why a rule of the policy cannot be applied to it."""

    run: Run
    conclusion: RunVerdict
    observation: StepObservation
    is_warm: bool = False
    inapplicable: str = ""


class SearchRuns:
    """Carries out the runs of a search."""

    def __init__(self, search: Search, settings: ConductorSettings, events: Events) -> None:
        self._search = search
        # A policy of one's own may sustain a rate at which latency rises.
        self._max_rise = search.steady_latency.max_rise if search.policy != "own" else math.inf
        self._settings = settings
        self._events = events

    def refused(self, request: RunRequest, reason: str) -> tuple[Run, RunVerdict]:
        """A run that does not take place, and its conclusion."""
        run = Run(request, self._settings, self._events, lambda: "")
        return run, run.give_up(reason)

    def observed(
        self, request: RunRequest, interrupted: Callable[[], str], *, warm: bool, keep: bool
    ) -> ObservedRun:
        """Carry out a run. warm: whether it finds its pipelines kept. keep: whether they are to be
        kept after it, if they keep up."""
        events = StepEvents(request.run_id)
        above_ms = HOPELESS_MS if warm else self._search.steady_latency.max_median_ms

        def ended() -> str:
            """Why the step should end, including a clearly unsustainable rate."""
            reason = interrupted()
            if request.step_of and not reason:
                reason = events.hopeless(self._max_rise, above_ms)
            return reason

        run = Run(request, self._settings, self._events, ended, listen=events.add, warm=warm)
        keep = keep and can_stay_warm(request)

        def kept(state: RunState) -> bool:
            """Also after a rate that was given up: the next traffic waits until they caught up."""
            return keep and (keeps_up(state) or events.was_given_up(state.failure))

        conclusion = run.perform(kept)
        state, is_warm = run.state, kept(run.state)
        if run.phases is None or state.load_finished is None or state.drained is None:
            broken_by = state.broken_by or (BROKER if state.broker_death else "")
            unfinished = events.unfinished(conclusion.reasons, broken_by)
            return ObservedRun(run, conclusion, unfinished, is_warm)
        pipeline = request.pipelines[0]
        limits = [cores for cores in (pipeline.cores, state.pipeline_cores) if cores is not None]
        observation = events.observation(
            run.phases,
            state.load_finished,
            state.drained,
            None if pipeline.name in state.elsewhere else state.watched.cores,
            conclusion.reasons,
            core_limit=min(limits, default=None),
        )
        unknown = inapplicable(self._search, observation) if conclusion.valid else ""
        return ObservedRun(run, conclusion, observation, is_warm, unknown)


class Searching:
    """A run preceded by a search. `interrupted` is as for a Run.

    so_far: progress of the same search under a previous conductor. runs: carries out its runs.
    """

    def __init__(
        self,
        request: RunRequest,
        settings: ConductorSettings,
        events: Events,
        interrupted: Callable[[], str],
        so_far: SoFar | None = None,
        *,
        runs: SearchRuns | None = None,
    ) -> None:
        assert request.workload.search is not None
        self.request = request
        self._search: Search = request.workload.search
        self._data = settings.data
        self._runs = runs or SearchRuns(self._search, settings, events)
        self._events = events
        self._ask = interrupted
        self._reason = ""
        self._so_far = so_far or SoFar()
        self._lost_by: tuple[str, ...] = ()  # why the last lost step did not take place
        self._warm = False
        self._least_s = 0  # of steps, if the pipeline has long batches
        self._ended_by = ""
        self._own: Policy | None = None

    def execute(self) -> None:
        """Search, then run at the rate found. Always concludes."""
        guess = self.request.workload.load.base_rate_per_second
        began_s = time.monotonic() - self._so_far.spent_s
        try:
            if self._search.policy_file is not None:
                self._own = own_policy(self._search.policy_file, self._data)
        except DefinitionError as error:
            self._reason = str(error)
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
        request = step_request(self.request, planned, number, self._warm, self._least_s)
        is_cold = not self._warm and can_stay_warm(self.request)
        step = self._step(request)
        run, conclusion, observed = step.run, step.conclusion, step.observation
        if self._reason:
            return
        if run.phases is None:
            self._lose(request.run_id, conclusion.reasons)
            return
        if step.inapplicable:
            self._reason = step.inapplicable
            return
        try:
            result = judged(observed, self._search, final=planned.long, own=self._own)
        except PolicyError as error:
            self._reason = str(error)
            return
        limited_by = observed.broken_by or _limited_by(result, run)
        warm_up = conclusion.detail.get("warm_up", {})
        done = done_step(number, planned, result, limited_by, warm_up)
        done = replace(
            done,
            cpu_share=observed.cpu_share,
            generator_us=observed.generator_us,
            cold=is_cold,
            measured_s=request.workload.phases.measure_s,
        )
        if observed.intended and self._search.policy == "steady-latency":
            most_s = MOST_LONGER * self._search.confirm_s
            enough = enough_s(observed, done.measured_s, most_s, kept_up=not done.refusals)
            self._least_s = max(self._least_s, enough)
        self._so_far = replace(self._so_far, steps=(*self._so_far.steps, done))
        self._publish(
            SearchStepJudged(
                run_id=self.request.run_id,
                invalid_reasons=observed.trouble,
                step=number,
                step_run_id=request.run_id,
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

    def _step(self, request: RunRequest) -> ObservedRun:
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
        step = self._observed(request, keep=True)
        step.run.tell(step.conclusion)
        return step

    def _observed(self, request: RunRequest, *, keep: bool) -> ObservedRun:
        step = self._runs.observed(request, self._interrupted, warm=self._warm, keep=keep)
        self._warm = step.is_warm
        return step

    def _lose(self, step_run_id: str, reasons: tuple[str, ...]) -> None:
        """Note a step whose load never began, which says nothing about its rate. Gives up the
        search after too many of them."""
        self._so_far = replace(self._so_far, lost=(*self._so_far.lost, step_run_id))
        self._lost_by = reasons
        log.warning("search_step_lost", run_id=step_run_id, reasons=reasons)
        if len(self._so_far.lost) > MOST_LOST:
            self._reason = " ".join(reasons)

    def _verify(self) -> None:
        """Carry out the run itself at a share of the rate found, or refuse it."""
        report = result_detail(self.request, self._so_far)
        report["ended_by"] = self._ended_by
        rate = report["verified_at_per_second"]
        if rate is not None and not self._interrupted():
            self._warm_up(rate)
        if self._interrupted() or rate is None:
            why = " ".join(report["limit"] or self._lost_by)
            reason = self._reason or f"No rate was sustained: {why}"
            request = at_rate(self.request, self.request.workload.load.base_rate_per_second)
            run, conclusion = self._runs.refused(request, reason)
        else:
            request = verifying_request(self.request, rate, self._warm, self._least_s)
            last = self._observed(request, keep=False)
            run, conclusion, observed = last.run, last.conclusion, last.observation
            reasons = (last.inapplicable,) if last.inapplicable else self._refusals(observed)
            report["verified"] = not reasons
            report["verification"] = observation_detail(observed)
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

    def _refusals(self, observed: StepObservation) -> tuple[str, ...]:
        """Why the rate at which the run itself took place was not sustained."""
        try:
            return judged(observed, self._search, final=True, own=self._own).refusals
        except PolicyError as error:
            return (str(error),)

    def _with_thresholds(self, detail: dict[str, Any], result: SearchDetail) -> dict[str, Any]:
        """The detail of a conclusion, with the thresholds on the result of the search."""
        thresholds = map(parse_threshold, self.request.workload.thresholds)
        pipeline, rate = self.request.pipelines[0].name, result["rate_per_second"]
        rows = [row.as_json() for row in judged_search(thresholds, pipeline, rate)]
        return {**detail, "thresholds": [*detail.get("thresholds", ()), *rows]} if rows else detail

    def _publish(self, event: SearchStepJudged | RateJudged) -> None:
        self._events.publish(event)
        log.info(event.kind, run_id=event.run_id, **event.detail)


def slower_machine(steps: Sequence[Done], generator_us: float | None) -> list[str]:
    """That the machine became slower since the rate found was sustained, in a sentence; empty if it
    did not. generator_us: CPU time of the generator per record now."""
    result = slower_than(steps, generator_us)
    if result is None:
        return []
    step, more = result
    return [
        f"The machine became slower: the generator used {more:.0%} more CPU time per record than in"
        f" step {step.number}."
    ]


def _limited_by(step_verdict: StepVerdict, run: Run) -> str:
    """What limited a step that was not sustained. Without late outputs there are no late seconds to
    attribute."""
    if step_verdict.by_cpu_alone:
        return run.limited_in_pipeline()
    return (
        run.limited_by(by_input_alone=step_verdict.by_input_alone) if step_verdict.refusals else ""
    )


def done_step(
    number: int,
    planned: Planned,
    step_verdict: StepVerdict,
    limited_by: str,
    warm_up: Mapping[str, Any],
) -> Done:
    """A judged step. warm_up: from the conclusion of its run."""
    return Done(
        planned.rate_per_second,
        planned.long,
        step_verdict.refusals,
        step_verdict.undecided,
        limited_by,
        number,
        warm_up.get("steady"),
        tuple(warm_up.get("moving", ())),
        warm_up.get("seconds"),
        step_verdict.by_input_alone,
        step_verdict.processed,
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
