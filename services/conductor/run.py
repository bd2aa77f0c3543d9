"""One bounded run, step by step: topics, readiness, warm-up, measure, cool-down, drain, conclude.

Every step waits for an event on the bus with a deadline. A failure, a cancellation or a missed
deadline ends the run early; it is then concluded as not valid, with the reason, and everything
that was started for it is stopped.

The floor of a run is the latency of a plain copy on the same stack, measured before the run. It is
a separate run, `<run>-floor`, on the pipeline `floor`, which copies the records of one stage at a
rate that any machine sustains. A failed floor does not end the run.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException

from analysis.lateness import PIPELINE
from analysis.thresholds import ENDED, judged, sentence
from schemas import catalogue
from schemas.commands import Drain, Measure, Prepare, Start, Stop
from schemas.domain import DomainSpec
from schemas.events import (
    BusEvent,
    FigureColumns,
    FirstOutputs,
    Killed,
    LoadFinished,
    PhaseStarted,
    Preparing,
    RunRequested,
    SteadinessObserved,
)
from schemas.load import Constant
from schemas.pipeline import Pipeline
from schemas.protocol import PhasePlan, Phases, RunPlan, RunRequest, floor_run_id
from schemas.threshold import Threshold
from schemas.validation_errors import DefinitionError
from schemas.workload import LEAST_WARM_UP_S, PLANTED, Kill
from services.conductor.fault_injection import FindProcesses, carry_out, plant, processes_of
from services.conductor.probe_outputs import ProbeOutputs, SteadyOutputs
from services.conductor.run_state import RunState
from services.conductor.run_verdict import RunVerdict, conclude
from services.conductor.settings import ConductorSettings
from services.conductor.warming import KNOWN_AFTER_MS
from services.definitions.pipelines import load_pipeline
from services.runtime.events import Bus, Events
from services.runtime.kafka import (
    KafkaUnavailableError,
    admin_client,
    assigned_consumer,
    end_offsets,
    ensure_topics,
)
from services.runtime.logs import get_log
from services.runtime.process import now_ms

log = get_log()
POLL_S = 0.1
PHASE_POLL_S = 0.5  # during the load, while no service waits for the conductor
ABORT_AFTER_MS = 5_000  # into the measured phase: too few outputs for percentiles before
JUDGE_EVERY_MS = 1_000
LOOK_EVERY_MS = 1_000
TELL_STEADINESS_EVERY_MS = 5_000
MEASURE_LEAD_MS = 4_000  # from the command until the times in it
ASK_AGAIN_MS = 2_000
KEPT_S = 60.0  # between two steps of a search
Keep = Callable[[RunState], bool]
"""Whether the pipelines of a run are kept for the next one."""

FLOOR_PIPELINE = "floor"
FLOOR_KINDS = ("copy", "decode")
MOST_FLOOR_RECORDS_PER_SECOND = 1_000.0
WARM_UP_S, COOL_DOWN_S, KEEP_UP_S = 4, 3, 4


def start_offsets(
    request: RunRequest, domain: DomainSpec, settings: ConductorSettings
) -> dict[str, tuple[int, ...]]:
    """Create the topics of a run, then return the end offset of every partition. domain: of the
    request. Raises KafkaException and KafkaUnavailableError."""
    partitions = request.workload.partitions or settings.input_partitions
    topics = [
        topic for each in request.domains for topic in catalogue.domain_topics(each, partitions)
    ]
    for pipeline in request.pipelines:
        stages = request.stages_of(pipeline)
        topics += catalogue.published_topics(domain, pipeline.name, stages, partitions)
    ensure_topics(admin_client(settings, "conductor"), topics, settings.replication)
    consumer = assigned_consumer(settings, "conductor-offsets")
    try:
        names = [topic.name for topic in topics]
        if request.workload.has_proxy:
            names.append(catalogue.FETCHES)
        return {name: end_offsets(consumer, name) for name in names}
    finally:
        consumer.close()


def keep_none(_state: RunState) -> bool:
    """Stop them after the run."""
    return False


class RunEndedError(Exception):
    """The run cannot continue; the text is one sentence."""


def why(ended: Exception) -> str:
    """Why a run cannot continue, in one sentence."""
    if isinstance(ended, KafkaException):
        return f"A request to the broker failed: {ended.args[0].str()}"
    return str(ended)


class Run:
    """Takes one request from its topics to its conclusion. `interrupted` is polled and returns a
    reason to end the run, or an empty string.

    listen: receives the figures of the run. warm: the pipelines were kept from the run
    before. keep_s: how long they are kept for the next one, if they are. bus: reads the topics of
    the run's state; opened by default. find_processes: finds what a fault kills.
    """

    def __init__(
        self,
        request: RunRequest,
        settings: ConductorSettings,
        events: Events,
        interrupted: Callable[[], str],
        *,
        listen: Callable[[FigureColumns], None] | None = None,
        warm: bool = False,
        keep_s: float = KEPT_S,
        bus: Bus | None = None,
        find_processes: FindProcesses = processes_of,
    ) -> None:
        self.request = request
        self.phases: PhasePlan | None = None
        self._settings = settings
        self._events = events
        self._interrupted = interrupted
        self._listen = listen
        self._warm = warm
        self._keep_s = keep_s
        self._state = RunState(request)
        self._bus = bus or Bus(settings, "conductor", self._state.topics, events)
        self._find_processes = find_processes
        self._prepared = False
        self._aborting: tuple[Threshold, ...] = ()
        self._judge_ms = 0
        self._steadiness_ms: int | None = None  # next report while the load goes on

    def execute(self, keep_pipelines: Keep = keep_none) -> None:
        """Run to the end. Always publishes a conclusion; always stops or keeps what it started."""
        self.tell(self.perform(keep_pipelines))

    def perform(self, keep_pipelines: Keep = keep_none) -> RunVerdict:
        """Run to the end and stop everything except kept pipelines; the conclusion is not published
        yet."""
        try:
            with self._noting_failure():
                self.phases = self._prepare()
                self._load(self.phases)
                self._drain(self.phases)
        finally:
            self._stop_parts(keep_pipelines(self._state))
        with self._noting_failure():
            for event in self._bus.rest():
                self._hear(event)
        self._phase("conclude")
        return conclude(self._state)

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """Note why the run cannot continue, instead of raising it."""
        try:
            yield
        except (RunEndedError, KafkaException, KafkaUnavailableError) as ended:
            self._state.failure = self._state.failure or why(ended)

    def limited_by(self, *, by_input_alone: bool = False) -> str:
        """The part that kept the pipelines of an ended run from keeping up. by_input_alone: they
        did, but their input was late or incomplete."""
        if self.phases is None:
            return ""
        return self._state.watched.limited_by(self.phases, by_input_alone=by_input_alone)

    def limited_in_pipeline(self) -> str:
        """What limited a pipeline that is known to be the limit: itself or its heap."""
        return PIPELINE if self.phases is None else self._state.watched.in_pipeline(self.phases)

    def give_up(self, reason: str) -> RunVerdict:
        """The conclusion of a run that does not take place."""
        self._state.failure = reason
        return conclude(self._state)

    @property
    def state(self) -> RunState:
        """State of the run from the bus."""
        return self._state

    def _prepare(self) -> PhasePlan:
        offsets = start_offsets(self.request, self.request.domain, self._settings)
        timeout_s = self._settings.prepare_timeout_s * len(self.request.pipelines)
        plan = RunPlan(
            request=self.request,
            start_offsets=offsets,
            start_timeout_s=timeout_s,
            warm=self._warm,
        )
        self._phase("prepare")
        self._events.publish(Preparing(run_id=self.request.run_id, plan=plan))
        outputs = self._awaited_outputs(plan)
        watch = self._watch(outputs)
        try:
            self._prepared = True
            self._events.send(Prepare(run_id=self.request.run_id, plan=plan))
            self._await(
                lambda: not watch.look() and not self._state.missing_ready(),
                timeout_s,
                lambda: f"not ready: {', '.join(self._state.missing_ready() + watch.unsteady)}",
            )
        finally:
            watch.close()
        if outputs:
            self._events.publish(FirstOutputs(run_id=self.request.run_id))
        return self._plan_phases()

    def _awaited_outputs(self, plan: RunPlan) -> dict[str, tuple[int, ...]]:
        if self.request.workload.pipelines_start_s:
            return {}  # the pipelines have not started
        others = {*self.request.input_topics, catalogue.FETCHES}
        return {topic: ends for topic, ends in plan.start_offsets.items() if topic not in others}

    def _watch(self, outputs: dict[str, tuple[int, ...]]) -> SteadyOutputs | ProbeOutputs:
        """What shows that the pipelines process the probe traffic."""
        if self._warm:
            return ProbeOutputs(self._settings, outputs, self.request.run_id)
        workload = self.request.workload
        # With `until_steady` the warm-up itself waits for steadiness.
        keep_up_s = 0 if workload.phases.until_steady else workload.keep_up_s
        intervals = math.ceil(keep_up_s / SteadyOutputs.INTERVAL_S)
        return SteadyOutputs(self._settings, outputs, intervals)

    def _plan_phases(self) -> PhasePlan:
        lead_ms = int(self._settings.start_lead_s * 1000)
        start_ms = (now_ms() + lead_ms + 999) // 1000 * 1000
        phases = PhasePlan(load_start_ms=start_ms, phases=self.request.workload.phases)
        self._events.send(Start(run_id=self.request.run_id, phases=phases))
        return phases

    def _load(self, phases: PhasePlan) -> None:
        until_steady = phases.phases.until_steady
        self._await_time(phases.load_start_ms)
        self._steadiness_ms = now_ms() + TELL_STEADINESS_EVERY_MS
        known = {} if until_steady else {"end_ms": phases.measure_start_ms}
        self._phase("warm_up", start_ms=phases.load_start_ms, **known)
        if until_steady:
            phases = self.phases = self._warm_up(phases)
        for phase, start_ms, end_ms in (
            ("measure", phases.measure_start_ms, phases.measure_end_ms),
            ("cool_down", phases.measure_end_ms, phases.load_end_ms),
        ):
            self._await_time(start_ms)
            self._phase(phase, start_ms=start_ms, end_ms=end_ms)
            if phase == "measure":
                self._measures(phases)
                self._kill(start_ms)
        self._await_time(phases.load_end_ms)
        self._aborting, self._steadiness_ms = (), None
        self._await(
            lambda: self._state.load_finished is not None,
            self._settings.load_timeout_s,
            lambda: "the generator did not finish the load",
        )

    def _warm_up(self, phases: PhasePlan) -> PhasePlan:
        """Wait until every stage is steady, or for the whole warm-up; returns the phases from then
        on."""
        last_ms = phases.measure_start_ms - MEASURE_LEAD_MS
        at_ms = phases.load_start_ms + 1000 * LEAST_WARM_UP_S
        while at_ms < last_ms:
            self._await_time(at_ms)
            result = self._state.warming.look(now_ms() - KNOWN_AFTER_MS)
            if result.steady:
                soonest_s = (now_ms() + MEASURE_LEAD_MS - phases.load_start_ms) // 1000
                warm_up_s = min(self._block_from(soonest_s), phases.phases.warm_up_s)
                shorter = phases.phases.model_copy(update={"warm_up_s": warm_up_s})
                phases = phases.model_copy(update={"phases": shorter})
                self._events.send(Measure(run_id=self.request.run_id, phases=phases))
                break
            at_ms = max(at_ms + LOOK_EVERY_MS, now_ms())
        return phases

    def _block_from(self, second: int) -> int:
        """The next second of the load at which a block of interleaved pipelines begins."""
        turns = self.request.interleaved
        return second if turns is None else second + (turns.first_s - second) % turns.block_s

    def _measures(self, phases: PhasePlan) -> None:
        """Start to collect figures and to check aborting thresholds."""
        self._state.begin_measuring(phases)
        if self._state.measured is not None:
            self._aborting = tuple(
                threshold for threshold in self._state.thresholds if threshold.abort
            )
            self._judge_ms = phases.measure_start_ms + ABORT_AFTER_MS

    def _check_thresholds(self) -> None:
        """Raise RunEndedError if an aborting threshold has failed; checked once a second."""
        measured = self._state.measured
        if not self._aborting or measured is None or now_ms() < self._judge_ms:
            return
        self._judge_ms = now_ms() + JUDGE_EVERY_MS
        rows = judged(self._aborting, measured.figures(early=True))
        failed = [row for row in rows if not row.passed and row.value is not None]
        if failed:
            raise RunEndedError(f"{ENDED} that {sentence(failed[0])}")

    def _kill(self, measure_start_ms: int) -> None:
        """Carry out the workload's faults at their times. Raises RunEndedError if a target does not
        exist."""
        for planned in sorted(self.request.workload.kills, key=lambda each: each.at_s):
            self._await_time(measure_start_ms + 1000 * planned.at_s)
            pipelines = self.request.pipelines
            processes = self._find_processes(planned, self._settings.data, pipelines)
            if not processes:
                what = f"{planned.target} on this machine to {planned.signal}"
                if planned.target in PLANTED:
                    what = f"pipeline on this machine for the {planned.said}"
                raise RunEndedError(f"There is no {what}.")
            run_id, pids = self.request.run_id, tuple(process.pid for process in processes)
            # First: a broker's death must not precede it.
            self._events.publish(
                Killed(run_id=run_id, target=planned.target, pids=pids, said=planned.said)
            )
            if planned.target in PLANTED:
                self._plant(planned)
            else:
                carry_out(planned, processes)
            log.info("killed", run_id=run_id, what=planned.said, pids=pids)

    def _plant(self, planned: Kill) -> None:
        """Carry out a fault of a record or disk. Raises RunEndedError if a program does not throw,
        or a disk is not full."""
        folder = self._settings.data / "runs" / self.request.run_id
        try:
            has_happened = plant(planned, folder, self.request.pipelines)
        except OSError as error:
            raise RunEndedError(f"There is no {planned.said} on this machine: {error}.") from error
        self._await(
            has_happened,
            self._settings.restart_timeout_s,
            lambda: f"there was no {planned.said}, although there should have been one",
        )

    def _drain(self, phases: PhasePlan) -> None:
        self._phase("drain")
        give_up_s = self.request.workload.judgement.give_up_ms / 1000
        left_s = give_up_s - (now_ms() - phases.load_end_ms) / 1000
        self._await_verdicts(max(0.0, left_s) + self._settings.drain_timeout_s)
        deadline_s = time.monotonic() + self._settings.restart_timeout_s
        while self._state.may_still_come() and time.monotonic() < deadline_s:
            self._await_time(now_ms() + ASK_AGAIN_MS)
            self._state.forget_drained()
            self._await_verdicts(self._settings.drain_timeout_s)

    def _await_verdicts(self, timeout_s: float) -> None:
        finished = self._state.load_finished
        assert isinstance(finished, LoadFinished)
        self._events.send(Drain(run_id=self.request.run_id, end_offsets=finished.end_offsets))
        self._await(
            lambda: self._state.drained is not None,
            timeout_s,
            lambda: "the evaluator did not give every expected output a verdict in time",
        )

    def _stop_parts(self, keep_pipelines: bool) -> None:
        self._steadiness_ms = None
        reason = self._state.failure or "run finished"
        run_id, keep_s = self.request.run_id, self._keep_s
        self._events.send(
            Stop(run_id=run_id, reason=reason, keep_pipelines=keep_pipelines, keep_s=keep_s)
        )
        if not self._prepared:
            return
        deadline_s = time.monotonic() + self._settings.stop_timeout_s
        while self._state.missing_stopped() and time.monotonic() < deadline_s:
            self._take_in()

    def tell(self, conclusion: RunVerdict) -> None:
        """Publish the conclusion, which ends the run."""
        self._bus.close()
        conclusion.tell(self._events, self.request.run_id)
        log.info(
            "concluded",
            run_id=self.request.run_id,
            valid=conclusion.valid,
            reasons=conclusion.reasons,
        )

    def _await(self, done: Callable[[], bool], timeout_s: float, why: Callable[[], str]) -> None:
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._take_in()
            self._check()
            if done():
                return
            if time.monotonic() > deadline_s:
                raise RunEndedError(f"After {timeout_s:.0f} s {why()}.")

    def _await_time(self, until_ms: int) -> None:
        while now_ms() < until_ms:
            self._take_in(min(PHASE_POLL_S, max(0.0, (until_ms - now_ms()) / 1000)))
            self._check()

    def _check(self) -> None:
        if self._state.failure:
            raise RunEndedError(self._state.failure)
        reason = self._interrupted()
        if reason:
            raise RunEndedError(reason)
        self._check_thresholds()

    def _take_in(self, timeout_s: float = POLL_S) -> None:
        for event in self._bus.poll(timeout_s):
            self._hear(event)
        self._tell_steadiness()

    def _tell_steadiness(self) -> None:
        """Publish periodically what the warm-up still waits for."""
        if self._steadiness_ms is None or now_ms() < self._steadiness_ms:
            return
        self._steadiness_ms = now_ms() + TELL_STEADINESS_EVERY_MS
        result = self._state.warming.look(now_ms() - KNOWN_AFTER_MS)
        self._events.publish(
            SteadinessObserved(
                run_id=self.request.run_id,
                steady=result.steady,
                moving=result.moving,
                still=result.still,
            )
        )

    def _hear(self, event: BusEvent) -> None:
        self._state.add(event)
        if self._listen is not None and isinstance(event, FigureColumns):
            self._listen(event)

    def _phase(self, phase: str, **times_ms: int) -> None:
        """Announce a phase; phases of the load include their scheduled start and end."""
        self._events.publish(PhaseStarted(run_id=self.request.run_id, phase=phase, **times_ms))


def measure_floor(
    request: RunRequest,
    settings: ConductorSettings,
    events: Events,
    interrupted: Callable[[], str],
) -> None:
    """Measure the floor and conclude it."""
    try:
        floor = floor_request(request, load_pipeline(FLOOR_PIPELINE))
    except DefinitionError as error:
        log.warning("no_floor", run_id=request.run_id, reason=str(error))
        return
    events.publish(RunRequested(run_id=floor.run_id, request=floor))
    Run(floor, settings, events, interrupted).execute()


def floor_request(request: RunRequest, pipeline: Pipeline) -> RunRequest:
    """The run that measures the floor of another. Raises DefinitionError for a domain without a
    stage of kind copy."""
    stage = _copied(request.domain)
    workload = request.workload
    rate = min(
        MOST_FLOOR_RECORDS_PER_SECOND,
        workload.load.peak_per_second or MOST_FLOOR_RECORDS_PER_SECOND,
    )
    lenient = {"must_be_steady": False, "must_be_undisturbed": False}  # it is too short for these
    changes = {
        "load": Constant(rate_per_second=rate),
        "phases": Phases(warm_up_s=WARM_UP_S, measure_s=workload.floor_s, cool_down_s=COOL_DOWN_S),
        "stages": (stage,),
        "thresholds": (),
        "kills": (),
        "search": None,
        "scaling": None,
        "partitions": None,
        "pipelines_start_s": 0,
        "keep_up_s": KEEP_UP_S,
        "floor_s": 0,
        "validity": workload.validity.model_copy(update=lenient),
    }
    return request.model_copy(
        update={
            "run_id": floor_run_id(request.run_id),
            "step_of": request.run_id,
            "workload": workload.model_copy(update=changes),
            "pipelines": (pipeline,),
            "stages": (stage,),
            "published": {pipeline.name: (stage,)},
            "topologies": {pipeline.name: "independent"},
            "interleaved": None,
            "scaled": None,
        }
    )


def _copied(domain: DomainSpec) -> str:
    for kind in FLOOR_KINDS:
        for stage in domain.stages:
            if stage.kind == kind and stage.reads[0] not in domain.stage_names:
                return stage.name
    raise DefinitionError("The domain has no stage that a plain copy can publish.")
