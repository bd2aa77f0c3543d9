"""The events of the bus, `results.*`: one model for each of `results.lifecycle` and of
`results.conclusions`. Those of the other topics carry figures, whose fields are columns.

    events.publish(Drained(run_id="r1", verdicts=verdicts))

    match read_event(topic, message.value()):
        case Drained(verdicts=verdicts): ...
        case Figures(topic=catalogue.LATENCY, fields=fields): ...

On the wire an event is a record of its topic's schema whose `detail` is the JSON of the model's
content. Consumers can rely on the required fields: what lacks one is refused (DecodeError). Unknown
fields of a read event are ignored: they are for users.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from schemas import catalogue, codec, protocol
from schemas.model import Message
from schemas.protocol import RunPlan, RunRequest
from schemas.suite import SuitePosition
from schemas.validation_errors import first_mistake
from schemas.watch import WatchRun

# Phases of a run; a search comes first.
PHASES = ("search", "prepare", *protocol.PHASES, "drain", "conclude")
# Measures whose values are summed. A sample of a foreign metric may be infinite.
FINITE = {
    catalogue.RESOURCES: (
        "interval_s",
        "cpu_seconds",
        "gc_seconds",
        "jit_seconds",
        "load_1m",
        "frequency_mhz",
        "steal_seconds",
        "cpu_pressure_seconds",
        "io_pressure_seconds",
        "memory_pressure_seconds",
        "run_queue_wait_seconds",
    ),
    catalogue.PIPELINE: ("input_rows_per_second", "processed_rows_per_second"),
    catalogue.PAIRS: ("mean_input_ms",),
}
# Histograms: the field with the values, in addition to `counts`.
VALUES = {
    catalogue.GENERATOR: "send_delays_us",
    catalogue.LATENCY: "latencies_ms",
    catalogue.SLICES: "latencies_ms",
}


class Event(Message):
    """Base of all events. run_id: the run that it is about, empty for none. time (epoch
    milliseconds) and producer (the instance of a service) are set when it is published."""

    HEAD: ClassVar[tuple[str, ...]] = ("run_id", "time", "producer")
    TOPIC: ClassVar[str]
    IS_TOLERANT: ClassVar = True

    run_id: str = ""
    time: int = 0
    producer: str = ""

    def record(self, producer: str, time: int) -> dict[str, Any]:
        """The fields of its record."""
        head = {name: getattr(self, name) for name in self.HEAD}
        return head | {"producer": producer, "time": time, "detail": self.content()}

    @property
    def detail(self) -> dict[str, Any]:
        """Its content, also fields that the model does not name."""
        content: dict[str, Any] = json.loads(self.content())
        return content


class LifecycleEvent(Event):
    """Base of the events of `results.lifecycle`, and one of an unknown name. pipeline: empty if it
    is about no pipeline."""

    HEAD: ClassVar = (*Event.HEAD, "pipeline", "stage", "phase")
    TOPIC: ClassVar = catalogue.LIFECYCLE
    name: ClassVar[str] = ""

    pipeline: str = ""
    stage: str = ""
    phase: str = ""

    def record(self, producer: str, time: int) -> dict[str, Any]:
        """The fields of its record."""
        return super().record(producer, time) | {"event": self.name}

    @property
    def about(self) -> str:
        """The pipeline that it is about, otherwise the instance that published it."""
        return self.pipeline or self.producer


class ServiceStarted(LifecycleEvent):
    """A service receives commands."""

    name = "service_started"
    pid: int | None = None


class ServiceStopped(LifecycleEvent):
    """A service was stopped."""

    name = "service_stopped"
    pid: int | None = None


class RunRequested(LifecycleEvent):
    """The conductor carries out a run."""

    name = "run_requested"
    WHOLE = "request"
    request: RunRequest


class RunRefused(LifecycleEvent):
    """The conductor does not carry out a run. going_on: the run that prevents it, if any."""

    name = "run_refused"
    reason: str
    going_on: str = ""


class WatchBegun(LifecycleEvent):
    """A watch begins another run, by default an hour of its topics."""

    name = "watch_begun"
    WHOLE = "run"
    run: WatchRun


class WatchTrouble(LifecycleEvent):
    """A problem of a watch to report. kind: topic_deleted, topic_appeared, partition_added,
    retention_overtook, truncated, undecodable, sampled, not_repeatable, not_readable,
    group_not_read or ended (of its process). invalid: why its run becomes invalid; empty if it does
    not. Other fields by kind."""

    model_config = ConfigDict(extra="allow")
    name = "watch_trouble"
    kind: str
    watch: str
    invalid: str = ""
    reason: str = ""
    topic: str = ""
    group: str = ""
    partition: int | None = None
    offset: int | None = None
    code: int | str | None = None
    again_in_s: float | None = None


class Preparing(LifecycleEvent):
    """The conductor has created the topics of a run."""

    name = "preparing"
    WHOLE = "plan"
    plan: RunPlan


class Ready(LifecycleEvent):
    """A service is ready for a run: which of several instances. service: empty for a single
    instance. machine_cores: of the observed machine, from the collector; pipeline_cores: of the
    pipelines' container, from the collector in it. transport: of a gateway."""

    name = "ready"
    service: str = ""
    instance_index: int = Field(0, ge=0)
    instance_count: int = Field(1, ge=1)
    machine_cores: float | None = Field(None, gt=0)
    pipeline_cores: float | None = Field(None, gt=0)
    transport: str = ""


class PipelineReady(LifecycleEvent):
    """A pipeline is ready for a run. about_engine: what its program says of itself."""

    name = "ready"
    WHOLE = "about_engine"
    about_engine: dict[str, JsonValue]


class FirstOutputs(LifecycleEvent):
    """All are ready, and every pipeline has published output of every stage."""

    name = "first_outputs"


class PhaseStarted(LifecycleEvent):
    """A phase of a run begins. start_ms, end_ms: as scheduled, epoch milliseconds, of phases of the
    load; without the end if that depends on events."""

    name = "phase_started"
    start_ms: int | None = None
    end_ms: int | None = None


class SearchStepStarted(LifecycleEvent):
    """A search begins its next step, which is a run of its own."""

    name = "phase_started"
    step: int
    step_run_id: str
    rate_per_second: float


class LoadFinished(LifecycleEvent):
    """A load has been sent: end_offsets per input topic and partition.

    One per generator: instance `instance_index` of `instance_count` reports its share, so counts
    are summed, and of the end offsets the highest are used. faults: records passed to the client by
    kind of fault (schemas/content.py); second copies of duplicates are not in the other counts.
    messages: information about this load for users, in sentences.
    """

    name = "load_finished"
    intended: int
    acknowledged: int
    failed: int
    end_offsets: dict[str, tuple[int, ...]]
    instance_index: int = 0
    instance_count: int = 1
    faults: dict[str, int] = Field(default_factory=dict)
    messages: tuple[str, ...] = ()


class ClockOffsetMeasured(LifecycleEvent):
    """From the evaluator before it is ready: the minimum of the broker's append time minus the
    generator's send time over the probe records."""

    name = "clock_offset"
    offset_ms: float
    records: int | None = None


class EvaluationResumed(LifecycleEvent):
    """An evaluator resumes a run after the process before it was killed."""

    name = "evaluation_resumed"


class Evaluating(LifecycleEvent):
    """The lag of an evaluator, every 10 s, and the number of cells of its pairing state."""

    name = "evaluating"
    largest_lag_ms: int
    lag_ms: int | None = None
    cells: int | None = None


class SteadinessObserved(LifecycleEvent):
    """Whether all is steady, every few seconds of the load; None if unknown. moving: what still
    changes, a sentence each; still: the same as `p50 of join still falls, 14 → 9 ms`."""

    name = "steadiness"
    steady: bool | None
    moving: tuple[str, ...]
    still: tuple[str, ...] = ()


class Drained(LifecycleEvent):
    """Verdict totals of the measure phase, by pipeline and stage.

    One per evaluator: instance `instance_index` of `instance_count` reports its share of the
    partitions, so totals are summed. came_forgotten: outputs that arrived after their inputs were
    evicted; their latencies are unknown. not_handed: outputs, not wrong, of which it is not known
    when their inputs were handed to the pipeline. missing: in all phases, by pipeline and stage.
    """

    name = "drained"
    verdicts: dict[str, dict[str, dict[str, int]]]
    came_forgotten: int = Field(0, ge=0)
    not_handed: int = Field(0, ge=0)
    missing: dict[str, dict[str, int]] = Field(default_factory=dict)
    instance_index: int = 0
    instance_count: int = 1

    @field_validator("verdicts")
    @classmethod
    def _all_are_counted(
        cls, verdicts: dict[str, dict[str, dict[str, int]]]
    ) -> dict[str, dict[str, dict[str, int]]]:
        for stages in verdicts.values():
            for counts in stages.values():
                if set(counts) != set(protocol.VERDICTS):
                    raise ValueError(f"verdicts must be {', '.join(protocol.VERDICTS)}")
        return verdicts


class FramesArrived(LifecycleEvent):
    """All frames of a load have arrived at the gateway, or none arrive any more: numbers of frames,
    and transit times."""

    model_config = ConfigDict(extra="allow")
    name = "way_in"
    transport: str = ""
    lost: int = 0
    not_appended: int = 0


class ResultsReceived(LifecycleEvent):
    """Frames on the way to and from a system behind sockets (schemas.engine.ResultsLine)."""

    name = "results_received"
    transport: str = ""
    frames_received: int | None = None
    sent: dict[str, int | None] = Field(default_factory=dict)
    received: dict[str, int] = Field(default_factory=dict)
    duplicates: int = 0
    refused: int = 0


class SocketLatency(LifecycleEvent):
    """Of a stage behind sockets: nanoseconds from sending the latest contributing record to
    receiving the result, both by the machine's monotonic clock, of the measure phase. unknown:
    outputs without such a time."""

    name = "socket_latency"
    count: int = 0
    unknown: int = 0
    latency_ns: dict[str, int | float | None] = Field(default_factory=dict)


class PipelineStopped(LifecycleEvent):
    """A pipeline was stopped."""

    name = "stopped"


class SuiteChanged(LifecycleEvent):
    """The state of the conductor's suite has changed."""

    name = "suite"
    WHOLE = "position"
    position: SuitePosition


class ProxyEnded(LifecycleEvent):
    """The proxy of a pipeline ended and is started again: when records were handed over meanwhile
    is not exactly known."""

    name = "proxy_ended"
    code: int


class StartAgain(LifecycleEvent):
    """A pipeline failed at its start for lack of processor time, and is started again before the
    load. attempt: the number of the try that begins."""

    model_config = ConfigDict(populate_by_name=True)
    name = "start_again"
    reason: str
    attempt: int = Field(2, alias="try")


class PipelineDown(LifecycleEvent):
    """A pipeline's driver was killed and is being restarted. The time until PipelineUp is the
    outage."""

    name = "pipeline_down"
    reason: str = ""
    restart: int = 0


class PipelineUp(LifecycleEvent):
    """The queries of a restarted driver run again. about_engine: as in PipelineReady."""

    name = "pipeline_up"
    WHOLE = "about_engine"
    about_engine: dict[str, JsonValue]


class PartDown(LifecycleEvent):
    """A process of the deployment has died. restart: number of the restart that begins; 0: none is
    left, the deployment ends."""

    name = "part_down"
    part: str
    reason: str
    restart: int = 1


class PartUp(LifecycleEvent):
    """A restarted process of the deployment serves again."""

    name = "part_up"
    part: str = ""
    outage_s: float = 0


class RecordsLost(LifecycleEvent):
    """From the store: retention removed records of a topic before they were projected, so no table
    has them."""

    name = "records_lost"
    topic: str = ""
    partition: int = 0
    records: int = 0
    first_offset: int = 0
    next_offset: int = 0


class Killed(LifecycleEvent):
    """The conductor killed, terminated or paused processes deliberately. said: which of it, as in
    `kill of the driver`."""

    name = "killed"
    target: str = ""
    pids: tuple[int, ...] = ()
    said: str = ""


class Failed(LifecycleEvent):
    """A service or a pipeline cannot continue the run: the reason, in a sentence."""

    name = "failed"
    reason: str


class Concluded(LifecycleEvent):
    """The conclusion of a run was published. ended: whether the watch of the run has ended."""

    name = "concluded"
    valid: bool
    clean: bool
    invalid_reasons: tuple[str, ...] = ()
    ended: bool = False


class Conclusion(Event):
    """Base of the events of `results.conclusions`, and one of an unknown kind. invalid_reasons: why
    it may not be used, one sentence each; empty if it may. Other fields than those named are for
    reports."""

    model_config = ConfigDict(extra="allow")
    HEAD: ClassVar = (*Event.HEAD, "invalid_reasons")
    TOPIC: ClassVar = catalogue.CONCLUSIONS
    kind: ClassVar[str] = ""

    invalid_reasons: tuple[str, ...] = ()

    def record(self, producer: str, time: int) -> dict[str, Any]:
        """The fields of its record."""
        reasons = list(self.invalid_reasons)
        head = {"kind": self.kind, "valid": not reasons, "invalid_reasons": reasons}
        return super().record(producer, time) | head


class RunJudged(Conclusion):
    """Of one run. clean: every expected output was exact and there were no others. watch: of a run
    of a watch."""

    kind = "run"
    clean: bool
    verdicts: dict[str, dict[str, dict[str, int]]] = Field(default_factory=dict)
    thresholds: tuple[dict[str, Any], ...] = ()
    watch: dict[str, Any] | None = None


class StageJudged(BaseModel):
    """One stage in a step of a search."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    highest_median_ms: float | None
    rise_ms_per_s: float
    longest_queue_records: float | None


class SearchStepJudged(Conclusion):
    """Of one step of a search for the sustainable rate. processed: share of the input that the
    pipeline kept up with, of a step whose latency rose. cold: the pipeline was new."""

    kind = "search_step"
    step: int
    step_run_id: str
    rate_per_second: float
    long: bool
    measured_s: int
    sustained: bool
    reasons: tuple[str, ...]
    undecided: bool = False
    by_input_alone: bool = False
    limited_by: str = ""
    steady: bool | None = None
    moving: tuple[str, ...] = ()
    warm_up_s: int | None = None
    processed: float | None = None
    cpu_share: float | None
    generator_us: float | None = None
    cold: bool = False
    stages: dict[str, StageJudged]


class RateJudged(Conclusion):
    """Of a search: the sustainable rate, None if there is none. verification: of the run at a share
    of it, if that took place."""

    kind = "sustainable_throughput"
    policy: str
    rate_per_second: float | None
    interval_per_second: tuple[float, float | None]
    confirmed: bool
    verified_at_per_second: float | None
    verified: bool
    limited_by: str = ""
    ended_by: str = ""
    verification: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _a_rate_is_verified_somewhere(self) -> Self:
        if self.rate_per_second is not None and self.verified_at_per_second is None:
            raise ValueError("a rate needs verified_at_per_second")
        return self


class RunsRepeated(Conclusion):
    """Of the repetition of a run. runs: their ids; rows: of the view `repetitions`; repetition: the
    same key of a report."""

    kind = "repetition"
    runs: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    repetition: dict[str, Any]


class PipelinesInterleaved(Conclusion):
    """Of pipelines measured alternately. interleaved: the same key of a report, without the pairs
    of blocks; said: the decision in words, against the pipeline named there."""

    kind = "interleaved"
    runs: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    against: str
    said: str
    interleaved: dict[str, Any]


class BaselineCompared(Conclusion):
    """Of the comparison with a baseline: the same key of a report."""

    kind = "baseline"
    runs: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    against: str
    said: str
    baseline: dict[str, Any]


class ChangePointFound(Conclusion):
    """Of the history of a figure: it changed for longer. The run is the first after the change."""

    kind = "change_point"
    workload: str
    pipeline: str
    stage: str
    metric: str
    first_run_after: str
    worse: bool
    likely_causes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FigureColumns:
    """An event of another topic: columns of numbers."""

    topic: str
    fields: dict[str, Any]

    @property
    def run_id(self) -> str:
        """The run that it is about, empty for none."""
        return str(self.fields["run_id"])


Kind = TypeVar("Kind", bound=Event)
BusEvent = LifecycleEvent | Conclusion | FigureColumns
_SPECIAL = (PipelineReady, SearchStepStarted)  # share their names with others
LIFECYCLE: dict[str, type[LifecycleEvent]] = {
    kind.name: kind for kind in LifecycleEvent.__subclasses__() if kind not in _SPECIAL
}
CONCLUSIONS: dict[str, type[Conclusion]] = {kind.kind: kind for kind in Conclusion.__subclasses__()}


def read_event(topic: str, value: bytes | None) -> BusEvent:
    """A valid event of a `results.*` topic. Raises codec.DecodeError."""
    return event_of(topic, codec.decode_as(catalogue.record_of(topic), value))


def event_of(topic: str, record: Mapping[str, Any]) -> BusEvent:
    """The same, from the fields of its record."""
    if topic == catalogue.LIFECYCLE:
        return _parsed(_lifecycle_kind(record), record)
    if topic == catalogue.CONCLUSIONS:
        return _parsed(CONCLUSIONS.get(record["kind"], Conclusion), record)
    check_figures(topic, record)
    return FigureColumns(topic, dict(record))


def check_figures(topic: str, record: Mapping[str, Any]) -> None:
    """Raise codec.DecodeError if the fields of figures contradict each other."""
    values = VALUES.get(topic)
    if values and len(record[values]) != len(record["counts"]):
        raise codec.DecodeError(f"{values} and counts differ in length")
    check_finite(topic, record)
    if values and min(record["counts"], default=1) <= 0:
        raise codec.DecodeError("counts must be greater than 0")
    if topic == catalogue.RESOURCES and record["interval_s"] <= 0:
        raise codec.DecodeError("interval_s must be greater than 0")


def check_finite(topic: str, record: Mapping[str, Any]) -> None:
    """Raise codec.DecodeError if a measure is infinite or not a number."""
    for name in FINITE.get(topic, ()):
        value = record[name]
        values = value if isinstance(value, list) else (value,)
        if not all(math.isfinite(each) for each in values if each is not None):
            raise codec.DecodeError(f"{name} is not a finite number")


def _lifecycle_kind(record: Mapping[str, Any]) -> type[LifecycleEvent]:
    name, phase = record["event"], record["phase"]
    if name == PhaseStarted.name:
        if phase not in PHASES:
            raise codec.DecodeError(f"{phase[:50]!r} is not a phase")
        return SearchStepStarted if phase == "search" else PhaseStarted
    if name == PipelineReady.name and record["pipeline"]:
        return PipelineReady
    return LIFECYCLE.get(name, LifecycleEvent)


def _parsed(kind: type[Kind], record: Mapping[str, Any]) -> Kind:
    try:
        return kind.parse({name: record[name] for name in kind.HEAD}, record["detail"])
    except ValidationError as error:
        raise codec.DecodeError(first_mistake(error, within="detail")) from error
