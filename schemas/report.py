"""The result of a run: what `--report` and `report --json` write, and every other form shows.

Version 1. Later versions only add fields; a reader ignores those that it does not know. A field
that the result does not have is absent from the JSON (`as_json`), such as `recovery` of a run that
nothing disturbed; None is an unknown figure.

Figures cover the measure phase. Latencies are milliseconds: percentiles of exact counts by nearest
rank are whole, means are not. `figure` and `definition` are names of schemas/threshold.py and of
`schemas.protocol.DEFINITIONS`. An interval is [low, high] with 95 % confidence.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

VERSION = 1
Number: TypeAlias = int | float
Interval: TypeAlias = list[Number]
OpenInterval: TypeAlias = list[Number | None]  # [low, high]; an unknown bound is None


class ReportPart(BaseModel):
    """Base of all parts. Values are never converted, so that figures are written as they were
    read."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    def as_json(self) -> dict[str, Any]:
        """As JSON types, without absent fields."""
        return self.model_dump(exclude_unset=True)


class EventPart(ReportPart):
    """Base of parts that an event has; its other fields are kept."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")


class SendDelay(ReportPart):
    """How late records were sent, milliseconds; None without a generator."""

    p50: Number | None = None
    p99: Number | None = None
    max: Number | None = None


class Input(ReportPart):
    """The input of all pipelines: acknowledged records, or for a watch records in the topics."""

    records: Number | None = None
    records_per_second: Number | None = None
    send_delay_ms: SendDelay = SendDelay()


class Latency(ReportPart):
    """One definition of latency. negative: outputs with a negative one. p5 to p99999: percentiles,
    each a value that occurred; the interval of one that too few outputs support is None. middle:
    mean of the middle half of the outputs. intervals: by figure; None if there is too little
    data."""

    count: int = 0
    negative: int = 0
    min: Number | None = None
    p5: Number | None = None
    p25: Number | None = None
    p50: Number | None = None
    p75: Number | None = None
    p90: Number | None = None
    p95: Number | None = None
    p99: Number | None = None
    p999: Number | None = None
    p99999: Number | None = None
    max: Number | None = None
    mean: Number | None = None
    middle: Number | None = None
    intervals: dict[str, Interval | None] | None = None

    def of(self, figure: str) -> Number | None:
        """A figure by its name."""
        value: Number | None = getattr(self, figure)
        return value

    def interval(self, figure: str) -> Interval | None:
        """The interval of a figure, if known."""
        return (self.intervals or {}).get(figure)


class StageCost(ReportPart):
    """What a stage adds to the latency of the nearest measured stage that it reads."""

    stage_before: str
    p50: Number
    p99: Number


class Recovery(ReportPart):
    """Recovery of a stage from one event of the run. normal_ms: median latency without it, None if
    unknown; high_for_s: how long the median exceeded 1.5 times that, None if until the end.
    silent_s: of a kill, the longest time without output in whole seconds; outage_s: the same to the
    millisecond, None if it lasted until the next kill or the end. before_p99_ms: 99th percentile
    of the outputs of the measure phase before the first kill. extra_core_s: core-seconds of the
    pipeline until its latency is normal, beyond those that it used before the first kill in such a
    time. first_output_s: of a start.
    peak_per_second: of a start and a burst, the most outputs of one second after it. p99_ms: of a
    burst, the 99th percentile of the outputs from it until latency is normal."""

    event: str
    normal_ms: Number | None
    highest_median_ms: Number | None
    high_for_s: int | None
    silent_s: int | None = None
    outage_s: Number | None = None
    before_p99_ms: Number | None = None
    extra_core_s: Number | None = None
    first_output_s: int | None = None
    peak_per_second: int | None = None
    p99_ms: Number | None = None


class Loss(ReportPart):
    """What was lost of a whole load, on the way of one stage. due: results due from the records
    that are known; received: distinct ones; lost: records that did not reach the topics, or the
    gateway, and results that did not come. Of these, records lost `before` the system; results not
    sent `inside` it and lost `after` it; None where that is not known."""

    due: Number
    received: Number
    lost: Number
    before: Number | None = None
    inside: Number | None = None
    after: Number | None = None


class StageReport(ReportPart):
    """A stage. outputs: all that arrived. verdicts: outputs by verdict. latency_ms: by definition;
    `visible` only of outputs in transactions. aborted: records of aborted transactions, which are
    no outputs. cost_ms: None if the stage reads no measured stage. lost: of the whole load, with
    `loss`, where; None if unknown. socket_ns: of a system behind sockets, nanoseconds from sending
    the latest contributing record to receiving the result."""

    outputs: Number | None = None
    records_per_second: Number | None = None
    verdicts: Mapping[str, Number] = Field(default_factory=dict)
    latency_ms: dict[str, Latency] = Field(default_factory=dict)
    aborted: Number = 0
    cost_ms: StageCost | None = None
    recovery: list[Recovery] = Field(default_factory=list)
    lost: Number | None = None
    loss: Loss | None = None
    socket_ns: Latency | None = None

    @property
    def latest(self) -> Latency:
        """Latency from the latest input; without figures if there is none."""
        return self.latency_ms.get("latest", Latency())


class Lag(ReportPart):
    """Unread records of a pipeline: the maximum, and at the end of the phase."""

    max: Number | None = None
    end: Number | None = None


class SchedulerDelay(ReportPart):
    """Delay of the tasks of a pipeline by its scheduler, milliseconds, in the measured phase."""

    tasks: int
    p50: Number
    p99: Number
    max: Number
    mean: Number


class Resources(ReportPart):
    """Use of a service or pipeline; empty if it was not sampled. heap_used_bytes_*: None without a
    JVM; all JVMs together, the mean over time. core_seconds_interval: of the cost per million input
    records. cpu_cores_by_process: mean cores of each process of a pipeline by the name of its
    program, largest first; None if unknown, as for a service. received_bytes_by_process,
    sent_bytes_by_process: mean bytes per second over the TCP connections of each of them."""

    cpu_cores: Number | None = None
    cpu_seconds: Number | None = None
    memory_bytes_max: Number | None = None
    heap_used_bytes_min: Number | None = None
    heap_used_bytes_mean: Number | None = None
    heap_used_bytes_max: Number | None = None
    core_seconds_per_million_records: Number | None = None
    core_seconds_interval: Interval | None = None
    cpu_cores_by_process: dict[str, Number] | None = None
    received_bytes_by_process: dict[str, Number] | None = None
    sent_bytes_by_process: dict[str, Number] | None = None

    @property
    def is_known(self) -> bool:
        """Whether it was sampled."""
        return self.cpu_cores is not None


class Restart(ReportPart):
    """A killed pipeline that was started again. down_ms: when it was found dead, epoch
    milliseconds; outage_s: how long none of its queries ran, None if they never ran again; late,
    duplicate: outputs attributed to the restart."""

    down_ms: int
    outage_s: Number | None = None
    late: int = 0
    duplicate: int = 0


class PipelineReport(ReportPart):
    """A pipeline. lag_records, scheduler_delay_ms: None if it reported none."""

    stages: dict[str, StageReport] = Field(default_factory=dict)
    topology: str | None = None
    lag_records: Lag | None = None
    scheduler_delay_ms: SchedulerDelay | None = None
    resources: Resources = Resources()
    restarts: list[Restart] = Field(default_factory=list)


class WarmUp(ReportPart):
    """The warm-up, and what was not steady while the run was measured, a sentence each. unknown:
    why steadiness is unknown. of_machine: changes that the machine's pace explains."""

    seconds: Number | None = None
    until_steady: bool = False
    moving: list[str] = Field(default_factory=list)
    unknown: str = ""
    of_machine: list[str] = Field(default_factory=list)


class Late(EventPart):
    """Late seconds by the part that caused them (analysis/lateness.py), and a summary."""

    seconds: int = 0
    of_seconds: int = 0
    by: dict[str, int] = Field(default_factory=dict)
    disturbed_by: list[str] = Field(default_factory=list)
    said: str = ""


class Room(EventPart):
    """Processor use of a part and the share of its runnable time that it waited for a core. Of the
    machine also the share taken by its host, and in which any task waited."""

    cpu_cores: Number | None = None
    cpu_share: Number | None = None
    waiting_share: Number | None = None
    steal_share: Number | None = None
    cpu_pressure_share: Number | None = None


class Heap(EventPart):
    """The heap of a pipeline's JVM (analysis/room.py)."""

    max_bytes: int | None = None
    used_share: Number | None = None
    gc_share: Number | None = None
    limited: bool = False


class FrameTimes(EventPart):
    """Percentiles of a time; None without frames."""

    p50: Number | None = None
    p99: Number | None = None


class ArrivedFrames(EventPart):
    """Frames of a load over the network, in all phases."""

    transport: str
    sent: int
    received: int = 0
    appended: int
    lost: int
    not_appended: int = 0
    duplicates: int = 0
    refused: int = 0
    turned_away: int = 0
    transit_us: FrameTimes
    append_ms: FrameTimes


class Observing(ReportPart):
    """What Tidegauge itself used; share: of all processor time used. Empty if unknown."""

    cpu_cores: Number | None = None
    share: Number | None = None


class ThresholdResult(ReportPart):
    """A threshold for a pipeline and stage. value: None if unknown; reason: why it is."""

    threshold: str
    pipeline: str
    stage: str
    value: Number | None
    limit: Number | None = None
    passed: bool
    reason: str = "has no such figure"


class StepResult(EventPart):
    """A step of a search. steady: None if unknown; cold: its pipeline was new."""

    step: int | None = None
    rate_per_second: Number
    measured_s: Number | None = None
    sustained: bool
    undecided: bool = False
    by_input_alone: bool = False
    limited_by: str = ""
    reasons: list[str] = Field(default_factory=list)
    steady: bool | None = None
    moving: list[str] = Field(default_factory=list)
    warm_up_s: Number | None = None
    cold: bool = False


class SearchResult(EventPart):
    """The result of a search for the sustainable rate, records per second. limit: why the next
    higher rate was not sustained, sentences; limited_by: the part. lost_steps: why steps gave no
    result. verification: present if a run at a share of the rate took place."""

    pipeline: str = ""
    stages: list[str] = Field(default_factory=list)
    policy: str = ""
    rate_per_second: Number | None = None
    interval_per_second: OpenInterval = [None, None]
    confirmed: bool = False
    limit: list[str] = Field(default_factory=list)
    limited_by: str = ""
    steps: list[StepResult] = Field(default_factory=list)
    lost_steps: list[Any] = Field(default_factory=list)
    verified_at_per_second: Number | None = None
    verified: bool = False
    ended_by: str = ""
    verification: dict[str, Any] | None = None


class NotJudged(EventPart):
    """Records of a topic that a watch read and did not judge. partition, offset: of the first, -1
    if unknown."""

    topic: str
    kind: str
    reason: str
    records: int
    partition: int = -1
    offset: int = -1


class WatchReport(EventPart):
    """Of a watch's run. inputs, outputs, refused: records. times: whose clocks its timestamps are
    of. share: least share of the identities that was counted, shares: all of them by the time from
    which they applied. unmeasured: why its timestamps measure no latency, or empty. from_ms,
    until_ms: the part of the run that was watched, epoch milliseconds."""

    inputs: int = 0
    outputs: int = 0
    refused: int = 0
    not_judged: list[NotJudged] = Field(default_factory=list)
    unmeasured: str = ""
    from_ms: int = 0
    until_ms: int = 0
    share: Number = 1.0
    shares: list[list[Number]] = Field(default_factory=list)
    times: str = ""


class StartedAgain(EventPart):
    """A pipeline that was started again before the load."""

    times: int
    reason: str


class RunConclusion(EventPart):
    """The detail of the conclusion `run`, without what is above it in the report. clean: every
    expected output was exact, and there were no others."""

    clean: bool = False
    verdicts: dict[str, Any] = Field(default_factory=dict)
    clock_offset_ms: Number | None = None
    evaluator_restarts: int = 0
    starts_again: dict[str, StartedAgain] = Field(default_factory=dict)
    warm_up: dict[str, Any] = Field(default_factory=dict)
    search: SearchResult | None = None
    watch: WatchReport | None = None


class Described(ReportPart):
    """A figure that is described beside a decision: means of both sides, the difference `value`
    with its interval. stage: empty for a figure of the pipeline."""

    stage: str
    figure: str
    unit: str
    before: Number
    after: Number
    value: Number
    low: Number | None
    high: Number | None


class Difference(ReportPart):
    """A decided difference between two pipelines, milliseconds. real: it exceeds the usual
    variation, and nothing speaks against it."""

    value: Number
    low: Number
    high: Number
    real: bool


class BlockPair(ReportPart):
    """Two neighbouring blocks, the first pipeline's first. start_s: epoch seconds. stages, costs:
    figures of both blocks."""

    start_s: list[int]
    stages: dict[str, list[dict[str, Number]]]
    costs: list[dict[str, Number]]


class Interleaved(ReportPart):
    """The decision over two pipelines that were measured alternately (analysis/interleaving.py).
    blocks: number of whole blocks. runs: if it is of other runs than this one."""

    order: list[str]
    block_s: int
    edge_s: int
    blocks: int
    pairs: list[BlockPair]
    confidence: Number
    differences: dict[str, dict[str, Difference]]
    described: list[Described]
    said: str
    runs: list[str] = Field(default_factory=list)


class RunOutcome(ReportPart):
    """One of several runs: why it is not valid, thresholds that failed, and doubts about its
    differences, a sentence each. Of a search also its rate."""

    run_id: str
    valid: bool
    invalid_reasons: list[str]
    clean: bool
    failed_thresholds: list[str] = Field(default_factory=list)
    doubts: list[str] = Field(default_factory=list)
    rate_per_second: Number | None = None
    interval_per_second: OpenInterval | None = None


class Median(ReportPart):
    """The median of a figure over runs, its interval, the confidence of that, and all values."""

    median: Number
    low: Number | None
    high: Number | None
    confidence: Number | None
    values: list[Number]


class RepeatedRecovery(ReportPart):
    """Medians of the recovery from the same event of every run, by its figures that all have."""

    event: str
    figures: dict[str, Median]


class RepeatedStage(ReportPart):
    """Medians by definition and figure. recovery: absent if nothing disturbed the runs."""

    latency_ms: dict[str, dict[str, Median]]
    recovery: list[RepeatedRecovery] = Field(default_factory=list)


class RepeatedPipeline(ReportPart):
    """Medians of a pipeline; resources: by name of the figure."""

    stages: dict[str, RepeatedStage] = Field(default_factory=dict)
    resources: dict[str, Median] = Field(default_factory=dict)


class RepeatedSearch(ReportPart):
    """Results of several searches. differ_by: their range as a share of the median."""

    rates_per_second: list[Number]
    median_per_second: Number
    differ_by: Number
    interval_per_second: OpenInterval
    limited_by: list[str]


class Repetition(ReportPart):
    """Several runs of the same; medians are of the valid ones. median_run: None if none is."""

    runs: list[RunOutcome]
    median_run: str | None
    confidence: Number | None
    intervals_by: str
    pipelines: dict[str, RepeatedPipeline]
    search: RepeatedSearch | None


class Bounded(ReportPart):
    """A figure with its bounds; of several runs the median, with the confidence of the bounds."""

    value: Number
    low: Number | None
    high: Number | None
    confidence: Number | None = None


class Workers(ReportPart):
    """Results with one number of workers. objection: why they are no evidence of scaling."""

    workers: int
    partitions: int
    runs: list[RunOutcome]
    rate_per_second: Bounded | None
    limited_by: list[str]
    free_cores: Number | None
    stages: dict[str, dict[str, Bounded | None]]
    core_seconds_per_million_records: Bounded | None
    objection: str = ""


class Law(ReportPart):
    """The Universal Scalability Law (analysis/scalability.py). of_workers: what it is fitted to."""

    of_workers: list[int]
    rate_of_one: Bounded
    contention: Bounded
    coherency: Bounded
    peak_workers: int | None


class Predicted(ReportPart):
    """The rate that the law gives; is_measured: or extrapolates."""

    workers: int
    is_measured: bool
    rate_per_second: Bounded


class Scalability(ReportPart):
    """A series of runs with increasing numbers of workers. evidence: numbers of workers that tell
    how the pipeline scales. said: sentences."""

    series: str
    pipeline: str
    points: list[Workers]
    law: Law | None
    predicted: list[Predicted]
    evidence: list[int]
    confidence: Number
    said: list[str]


class SweepPoint(ReportPart):
    """The runs with one choice of settings. values: of the settings, by name. run_id: the run whose
    figures these are, of several the median run. valid: how many of the `runs` are. outcomes: of
    each of them."""

    values: dict[str, Any]
    run_id: str
    runs: int
    valid: int
    pipelines: dict[str, PipelineReport]
    outcomes: list[RunOutcome] = Field(default_factory=list)


class Compared(ReportPart):
    """A figure of the report and of its baseline. verdict: of analysis/intervals.py."""

    pipeline: str
    stage: str
    figure: str
    before: Number
    now: Number
    verdict: str


class BaselineComparison(ReportPart):
    """The comparison with a baseline (analysis/baseline.py). by: `runs` or `seconds`, whose
    variation decides. left_out: why the two are not comparable. passed: None if undecided.
    required: the command demands a decision."""

    name: str
    run_id: str
    by: str
    left_out: list[str]
    doubts: list[str]
    rows: list[Compared]
    passed: bool | None
    said: str
    required: bool = False


class GroupLag(ReportPart):
    """How far a consumer group is behind in a topic: unread records, and the age in seconds of the
    oldest record that it reads next, each at most and at the end. caught_up_in_s: time until it has
    read all, at the end. Times are None if unknown, or if it does not catch up."""

    group: str
    topic: str
    max: int
    last: int
    max_s: Number | None = None
    last_s: Number | None = None
    caught_up_in_s: Number | None = None


class Figures(ReportPart):
    """What thresholds limit: of a run in progress, of a past one, or of several.
    sustainable_rate: records per second, None without a search. groups: of a watch."""

    input: Input = Input()
    pipelines: dict[str, PipelineReport] = Field(default_factory=dict)
    sustainable_rate: Number | None = None
    groups: list[GroupLag] = Field(default_factory=list)


class Report(ReportPart):
    """The result of a run. valid: whether its figures count, else invalid_reasons say why not.
    steady, disturbed: None if unknown. floor: latency of a plain copy just before the run, floor_s:
    how long it was to be measured. services: use by service. left_out: results of what is not in
    the run's plan. identity: what comparable runs share, by name. mean_bytes: of the values of
    `input`, and of a watch of `output`. groups: consumer groups of a watch, and their lag.
    interleaved: None unless pipelines took turns. scalability, repetition, sweep, baseline: results
    of commands about several runs."""

    run_id: str
    workload: str = ""
    domain: str = ""
    valid: bool
    steady: bool | None = None
    warm_up: WarmUp | None = None
    invalid_reasons: list[str] = Field(default_factory=list)
    disturbed: bool | None = None
    late: Late = Late()
    room: dict[str, Room] = Field(default_factory=dict)
    heap: dict[str, Heap] = Field(default_factory=dict)
    floor: Latency | None = None
    floor_s: Number = 0
    environment: dict[str, Any] = Field(default_factory=dict)
    input: Input
    way_in: ArrivedFrames | None = None
    pipelines: dict[str, PipelineReport]
    services: dict[str, Resources] = Field(default_factory=dict)
    observing: Observing = Observing()
    seconds_expired: bool = False
    left_out: list[str] = Field(default_factory=list)
    thresholds: list[ThresholdResult] = Field(default_factory=list)
    conclusion: RunConclusion = RunConclusion()
    mean_bytes: dict[str, Number | None] = Field(default_factory=dict)
    groups: list[GroupLag] = Field(default_factory=list)
    identity: dict[str, str] = Field(default_factory=dict)
    interleaved: Interleaved | None = None
    scalability: Scalability | None = None
    repetition: Repetition | None = None
    sweep: list[SweepPoint] | None = None
    baseline: BaselineComparison | None = None

    @property
    def search(self) -> SearchResult:
        """The result of its search; without a rate if it has none."""
        return self.conclusion.search or SearchResult()

    @property
    def watch(self) -> WatchReport | None:
        """What is particular of a watch's run; None for other runs."""
        return self.conclusion.watch

    @property
    def is_unmeasured(self) -> bool:
        """Whether it is a watch's run whose timestamps measure no latency."""
        return self.watch is not None and bool(self.watch.unmeasured)

    @property
    def sustainable_rate(self) -> Number | None:
        """The sustainable rate, records per second: of several searches the median."""
        if self.repetition is not None and self.repetition.search is not None:
            return self.repetition.search.median_per_second
        return self.search.rate_per_second

    @property
    def figures(self) -> Figures:
        """What thresholds limit."""
        return Figures(
            input=self.input, pipelines=self.pipelines, sustainable_rate=self.sustainable_rate
        )
