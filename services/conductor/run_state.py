"""State of one run from events on the bus. Pure.

state = RunState(request)
state.add(event)
state.missing_ready(), state.failure
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

from schemas import catalogue, protocol
from schemas.events import (
    BusEvent,
    ClockOffsetMeasured,
    Drained,
    Evaluating,
    EvaluationResumed,
    Failed,
    FigureColumns,
    FramesArrived,
    LifecycleEvent,
    LoadFinished,
    PartDown,
    PipelineDown,
    PipelineReady,
    PipelineStopped,
    ProxyEnded,
    Ready,
    ServiceStarted,
    StartAgain,
)
from schemas.figures import ResourceFigures
from schemas.protocol import PhasePlan, RunRequest
from schemas.threshold import Threshold, parse_threshold
from services.conductor.evidence import BUS as MORE
from services.conductor.evidence import CollectedEvidence, PhaseFigures
from services.conductor.warming import Steadiness, Warming

# Services that cannot resume a run after a restart, and the event until which they are needed.
MUST_LIVE = {"generator": "load_finished", "gateway": "load_finished", "runner": "drained"}
BROKER = "kafka"
GATEWAY = "gateway"
READY_SERVICES = ("generator", "evaluator", "collector")
OF_INTEREST = ("measure", "latest")
BUS = (catalogue.LIFECYCLE, catalogue.GENERATOR, catalogue.LATENCY, catalogue.RESOURCES)


@dataclass
class RunState:
    """Facts of one run. ready, stopped: services by name, pipelines as `pipeline:NAME`.

    send_delays_us: histogram of the measure phase; latencies: outputs per pipeline and stage in the
    measure phase; negative: those with a negative latency. clock_offset_ms: of the broker's clock
    from the generator's; resumed: number of evaluator restarts during this run; proxies_ended:
    pipelines whose proxy ended; starts_again:
    how often a pipeline was started again before the load, and the last reason; restarted:
    pipelines that were killed and restarted; elsewhere: pipelines of which processes run where the
    runner does not, such as executors of a cluster; pipeline_cores: what the container of the
    pipelines may use, None without one. failure: why the run ended early; broken_by: the
    service that ended it, empty for a pipeline. broker_death: why the broker ended, if it did: the
    run goes on, but other failures are attributed to it. largest_lag_ms: maximum lag of the
    evaluation, None if unknown.
    Processor time: machine_s is the total, stolen_s was used by other machines on the host, busy_s
    by this machine, own_s by the stack. sees_the_stack: whether the collector sees all processes of
    the stack, which it does not in a container. measured: figures so far, of a run
    with thresholds. warming: whether the pipelines are steady; watched: causes of late seconds;
    phases: of the load, once it is measured. frames: what arrived at the gateway, if it has one.
    """

    request: RunRequest
    ready: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    failure: str = ""
    broken_by: str = ""
    loads_finished: dict[int, LoadFinished] = field(default_factory=dict)
    drained: Drained | None = None
    send_delays_us: Counter[int] = field(default_factory=Counter)
    latencies: Counter[tuple[str, str]] = field(default_factory=Counter)
    negative: Counter[tuple[str, str]] = field(default_factory=Counter)
    clock_offset_ms: float | None = None
    resumed: int = 0
    proxies_ended: set[str] = field(default_factory=set)
    starts_again: dict[str, dict[str, Any]] = field(default_factory=dict)
    restarted: set[str] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)
    pipeline_cores: float | None = None
    broker_death: str = ""
    largest_lag_ms: int | None = None
    stolen_s: float = 0.0
    machine_s: float = 0.0
    busy_s: float = 0.0
    own_s: float = 0.0
    sees_the_stack: bool = False
    measured: PhaseFigures | None = None
    warming: Warming = field(init=False)
    watched: CollectedEvidence = field(init=False)
    phases: PhasePlan | None = None
    frames: FramesArrived | None = None
    _services: dict[str, str] = field(default_factory=dict)  # by instance that was ready
    _ready_instances: dict[str, set[int]] = field(default_factory=dict)
    _drained_instances: dict[int, Drained] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.warming = Warming(self.request)
        self.watched = CollectedEvidence(self.request)
        if self.request.workload.thresholds:
            self.measured = PhaseFigures(self.request)

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics of the bus to read."""
        return BUS if self.measured is None else (*BUS, *MORE)

    def begin_measuring(self, phases: PhasePlan) -> None:
        """Start the measured phase."""
        self.phases = phases
        if self.measured is not None:
            self.measured.begins(phases)

    def steadiness(self) -> Steadiness:
        """Whether the pipelines were steady while they were measured."""
        if self.phases is None:
            return Steadiness(None, unknown="nothing was measured")
        return self.warming.conclude(self.phases.measure_start_ms, self.phases.measure_end_ms)

    @property
    def thresholds(self) -> tuple[Threshold, ...]:
        """Thresholds of its workload."""
        return tuple(map(parse_threshold, self.request.workload.thresholds))

    @property
    def lost(self) -> dict[str, dict[str, int]] | None:
        """Records that did not reach the topics or the system and results that did not come, of
        the whole load, by pipeline and stage; None if that is not known."""
        if self.drained is None or self.load_finished is None:
            return None
        before = self.load_finished.failed
        if self.request.has_gateway:
            if self.frames is None:
                return None
            before = self.frames.lost + self.frames.not_appended
        return {
            pipeline: {stage: before + count for stage, count in counted.items()}
            for pipeline, counted in self.drained.missing.items()
        }

    @property
    def load_finished(self) -> LoadFinished | None:
        """Total of all generators; None until each has reported."""
        loads = list(self.loads_finished.values())
        return together(loads) if loads and len(loads) >= loads[0].instance_count else None

    def add(self, event: BusEvent) -> None:
        """Add one event of a topic of BUS; events of other runs are ignored."""
        if isinstance(event, LifecycleEvent) and not event.run_id:
            self._add_deployment(event)
        if event.run_id != self.request.run_id:
            return
        if isinstance(event, LifecycleEvent):
            self._add_lifecycle(event)
        elif isinstance(event, FigureColumns):
            self._add_figures(event)

    def _add_figures(self, figures: FigureColumns) -> None:
        self.warming.add(figures)
        self.watched.add(figures)
        if self.measured is not None:
            self.measured.add(figures)
        topic, record = figures.topic, figures.fields
        if topic == catalogue.RESOURCES:
            self._add_usage(cast("ResourceFigures", record))
        elif topic == catalogue.GENERATOR and record["phase"] == "measure":
            self.send_delays_us.update(
                dict(zip(record["send_delays_us"], record["counts"], strict=True))
            )
        elif topic == catalogue.LATENCY and (record["phase"], record["definition"]) == OF_INTEREST:
            stage = record["pipeline"], record["stage"]
            self.latencies[stage] += sum(record["counts"])
            self.negative[stage] += sum(
                count
                for latency, count in zip(record["latencies_ms"], record["counts"], strict=True)
                if latency < 0
            )

    def wanted(self) -> set[str]:
        """Services and pipelines that must answer `ready` before the load starts."""
        pipelines = {f"pipeline:{pipeline.name}" for pipeline in self.request.pipelines}
        if self.request.workload.pipelines_start_s:
            pipelines = set()  # they start during the load
        gateway = {GATEWAY} if self.request.has_gateway else set()
        return {*READY_SERVICES, *gateway, *pipelines}

    def missing_ready(self) -> list[str]:
        """Those that have not answered `ready` yet, sorted."""
        return sorted(self.wanted() - self.ready)

    def missing_stopped(self) -> list[str]:
        """Pipelines that have not answered `stopped` yet, sorted."""
        pipelines = {f"pipeline:{pipeline.name}" for pipeline in self.request.pipelines}
        return sorted(pipelines - self.stopped)

    def may_still_come(self) -> bool:
        """Whether outputs counted as missing may still arrive: a restarted pipeline resumes,
        however late that is."""
        verdicts = self.drained.verdicts if self.drained else {}
        return any(
            counts.get("missing", 0)
            for pipeline in self.restarted
            for counts in verdicts.get(pipeline, {}).values()
        )

    def forget_drained(self) -> None:
        """Discard totals before the evaluators are asked again."""
        self.drained = None
        self._drained_instances = {}

    def _add_deployment(self, event: LifecycleEvent) -> None:
        """Note the death of a service that this run requires.

        Its supervisor reports it at once (part_down). A restarted service reports its start, which
        counts if it had been ready for this run.
        """
        producer = event.producer
        service, how = self._services.get(producer, producer), f"{producer} was restarted"
        if isinstance(event, PartDown):
            service, how = event.part, event.reason
        elif not isinstance(event, ServiceStarted) or producer not in self._services:
            return
        if service == BROKER:
            self.broker_death = f"{how} during the run"
        if service == "runner":  # its drivers end with it, and no other service can report that
            self.stopped.update(f"pipeline:{pipeline.name}" for pipeline in self.request.pipelines)
        if self._must_live(service) and not self.failure:
            self.failure, self.broken_by = f"{how} during the run", service

    def _must_live(self, service: str) -> bool:
        """Whether the run still needs a service that cannot resume it."""
        if service not in MUST_LIVE or getattr(self, MUST_LIVE[service]) is not None:
            return False
        return service != GATEWAY or self.request.has_gateway

    def _add_lifecycle(self, event: LifecycleEvent) -> None:
        name = f"pipeline:{event.pipeline}" if event.pipeline else event.producer
        match event:
            case PipelineReady():
                self._services[event.producer] = "runner"
                self.ready.add(name)
                if event.about_engine.get(protocol.RUNS_ELSEWHERE):
                    self.elsewhere.add(event.pipeline)
            case Ready():
                self._add_ready(event)
            case PipelineStopped():
                self.stopped.add(name)
            case Failed() if not self.failure:
                self.failure = f"{name} failed: {event.reason}"
                self.broken_by = "" if event.pipeline else name
            case LoadFinished() | FramesArrived() | Drained():
                self._add_end(event)
            case Evaluating():
                self.watched.add_lag(event.time // 1000, event.largest_lag_ms)
                self.largest_lag_ms = max(self.largest_lag_ms or 0, event.largest_lag_ms)
            case ClockOffsetMeasured(offset_ms=offset_ms):
                known_ms = self.clock_offset_ms
                self.clock_offset_ms = offset_ms if known_ms is None else min(known_ms, offset_ms)
            case StartAgain(pipeline=pipeline):
                self.ready.discard(name)
                times = self.starts_again.get(pipeline, {}).get("times", 0) + 1
                self.starts_again[pipeline] = {"times": times, "reason": event.reason}
            case ProxyEnded():
                self.proxies_ended.add(event.pipeline)
            case PipelineDown():
                self.restarted.add(event.pipeline)
            case EvaluationResumed():
                self.resumed += 1

    def _add_ready(self, share: Ready) -> None:
        """Mark a service as ready once all its instances are."""
        service = share.service or share.producer
        self._services[share.producer] = service
        self.watched.cores = share.machine_cores or self.watched.cores
        self.pipeline_cores = share.pipeline_cores or self.pipeline_cores
        instances = self._ready_instances.setdefault(service, set())
        instances.add(share.instance_index)
        if len(instances) >= share.instance_count:
            self.ready.add(service)

    def _add_end(self, event: LoadFinished | FramesArrived | Drained) -> None:
        match event:
            case LoadFinished():
                self.loads_finished[event.instance_index] = event
            case FramesArrived():
                self.frames = event
            case Drained():
                self._add_drained(event)

    def _add_drained(self, drained: Drained) -> None:
        """Add the totals of one evaluator's share."""
        self._drained_instances[drained.instance_index] = drained
        if len(self._drained_instances) < drained.instance_count:
            return
        instances = self._drained_instances.values()
        totals: dict[str, dict[str, Counter[str]]] = {}
        for instance in instances:
            for pipeline, stages in instance.verdicts.items():
                for stage, counts in stages.items():
                    of_stage = totals.setdefault(pipeline, {}).setdefault(stage, Counter())
                    of_stage.update(counts)
        forgotten = sum(instance.came_forgotten for instance in instances)
        not_handed = sum(instance.not_handed for instance in instances)
        missing: dict[str, Counter[str]] = {}
        for instance in instances:
            for pipeline, counted in instance.missing.items():
                missing.setdefault(pipeline, Counter()).update(counted)
        self.drained = Drained(
            verdicts=totals,
            came_forgotten=forgotten,
            not_handed=not_handed,
            missing={pipeline: dict(counted) for pipeline, counted in missing.items()},
        )

    def _add_usage(self, record: ResourceFigures) -> None:
        """Add processor time by user; samples have no phase, so the whole run counts."""
        if record["service"] != protocol.MACHINE:
            self.own_s += record["cpu_seconds"]
            self.sees_the_stack |= record["service"] in protocol.SEEN_WITH_THE_STACK
            return
        self.machine_s += record["interval_s"] * (self.watched.cores or 1)
        self.busy_s += record["cpu_seconds"]
        self.stolen_s += record.get("steal_seconds") or 0.0


def together(loads: list[LoadFinished]) -> LoadFinished:
    """Total of several generators: counts are summed, of end offsets the highest are kept."""
    faults: Counter[str] = Counter()
    for load in loads:
        faults.update(load.faults)
    topics = loads[0].end_offsets
    return LoadFinished(
        intended=sum(load.intended for load in loads),
        acknowledged=sum(load.acknowledged for load in loads),
        failed=sum(load.failed for load in loads),
        end_offsets={
            topic: tuple(map(max, zip(*(load.end_offsets[topic] for load in loads), strict=True)))
            for topic in topics
        },
        instance_count=loads[0].instance_count,
        faults=dict(faults),
        messages=tuple(message for load in loads for message in load.messages),
    )
