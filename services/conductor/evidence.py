"""Collects per-second facts of one run: causes of late seconds, and headroom. Pure.

watched = CollectedEvidence(request)
watched.add(figures)
watched.detail(phases)      # the conclusion's `disturbed`, `late`, `room` and `heap`

`PhaseFigures` are the figures of the current run for its thresholds: of the measured phase only,
for runs with thresholds. Figures per second and per record of interleaved pipelines cover the
pipeline's own turns.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from statistics import median
from typing import TypedDict, TypeVar, cast

from analysis.costs import core_seconds_per_million_records
from analysis.interleaving import Turns
from analysis.lateness import (
    OTHERS_SHARE_OF_RUN,
    PIPELINE,
    Attribution,
    Evidence,
    attribute,
    limited_by,
)
from analysis.room import (
    HEAP,
    HeapSample,
    HeapUse,
    PartUse,
    Use,
    added,
    heap,
    heap_sentence,
    limited_pipelines,
    room,
    room_sentence,
)
from schemas import catalogue, protocol
from schemas.events import Drained, FigureColumns
from schemas.figures import (
    GeneratorFigures,
    LatencyFigures,
    ProgressFigures,
    ResourceFigures,
    ThroughputFigures,
)
from schemas.percentiles import PackedCounts, quantile, ranked, summary
from schemas.protocol import MACHINE, PhasePlan, RunRequest
from schemas.report import (
    Figures,
    Input,
    Lag,
    Latency,
    PipelineReport,
    Resources,
    SendDelay,
    StageReport,
)

MOST_SECONDS = 10_800  # the newest seconds of longer runs
OPEN_SECONDS = 40  # seconds whose counts may still grow
LEVEL = 0.95
LEAST_OF_LAST = 0.1  # of the usual number of outputs: a last second with fewer is not examined
LONGEST_TELLING_S = 10  # maximum time between the evaluator's lag reports
BROKER = "kafka"
WARM_UP_OPEN_SECONDS = 10  # the same for the warm-up, once the stage has measured outputs
LOOKED_AT = ("warm_up", "measure")
DEFINITIONS = ("event_time", "latest")
Value = TypeVar("Value")
TIMED = (catalogue.THROUGHPUT, catalogue.PIPELINE, catalogue.RESOURCES)
# In addition to the topics of every run.
BUS = (catalogue.THROUGHPUT, catalogue.PIPELINE, catalogue.VERDICTS)
# Buffered events that arrive before the phase times are known. Only those of the measured phase
# matter, which begins at most a second before.
EARLY = 500


class LateDetail(TypedDict):
    """Late seconds and their causes, as in a conclusion. by: seconds by cause; said: a sentence."""

    seconds: int
    of_seconds: int
    by: dict[str, int]
    disturbed_by: list[str]
    said: str


class EvidenceDetail(TypedDict):
    """What a conclusion says of the evidence. room: by part of the stack; heap: by pipeline."""

    disturbed: bool | None
    late: LateDetail
    room: dict[str, PartUse]
    heap: dict[str, HeapUse]


class _Percentiles:
    """The percentile LEVEL of each second, from additive counts. Only the newest seconds keep their
    counts."""

    def __init__(self) -> None:
        self._open: dict[int, PackedCounts] = {}
        self._closed: dict[int, float] = {}
        self._sizes: dict[int, int] = {}

    def add(self, second_ms: int, values: list[int], counts: list[int]) -> None:
        """Count values of one second."""
        at = second_ms // 1000
        if at in self._closed:
            return
        self._open.setdefault(at, PackedCounts()).add(values, counts)
        _put(self._sizes, at, self._sizes.get(at, 0) + sum(counts))
        if len(self._open) > OPEN_SECONDS:
            self._close(min(self._open))

    def close_before(self, second_ms: int) -> None:
        """Discard the counts of earlier seconds; their percentiles are kept."""
        for at in sorted(each for each in self._open if each < second_ms // 1000):
            self._close(at)

    def _close(self, at: int) -> None:
        _put(self._closed, at, _percentile(self._open.pop(at)))

    def by_second(self) -> dict[int, float]:
        """All percentiles, in order of time."""
        now = {at: _percentile(of_second) for at, of_second in self._open.items()}
        return dict(sorted((self._closed | now).items()))

    def of_whole_seconds(self) -> dict[int, float]:
        """The same without a last second that has few values, because one short stall would delay
        all of them."""
        result = self.by_second()
        if result:
            last = max(result)
            if self._sizes[last] < LEAST_OF_LAST * median(self._sizes.values()):
                del result[last]
        return result


def _percentile(of_second: PackedCounts) -> float:
    return float(quantile(of_second.counts(), LEVEL) or 0)


class CollectedEvidence:
    """Facts of one run. Expects events of that run only. cores: of the observed machine; until they
    are known, of the machine on which the run was requested."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self.cores: float | None = request.environment.get("cores")
        self._latencies: defaultdict[tuple[str, str, tuple[str, str]], _Percentiles]
        self._latencies = defaultdict(_Percentiles)
        self._send_delays_us: defaultdict[str, _Percentiles] = defaultdict(_Percentiles)
        self._uses: defaultdict[str, dict[int, Use]] = defaultdict(dict)
        self._heaps: defaultdict[str, dict[int, HeapSample]] = defaultdict(dict)
        # Sums of queue_full_us and of send delays, microseconds, by phase and second.
        self._waited_us: defaultdict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
        self._behind_ms: dict[int, float] = {}
        self._told_behind_s = 0

    def add(self, figures: FigureColumns) -> None:
        """Add figures of the run."""
        topic, fields = figures.topic, figures.fields
        if topic == catalogue.RESOURCES:
            self._add_use(cast("ResourceFigures", fields))
        elif topic == catalogue.GENERATOR and fields["phase"] in LOOKED_AT:
            self._add_send_delays(cast("GeneratorFigures", fields))
        elif topic == catalogue.LATENCY and fields["phase"] in LOOKED_AT:
            self._add_latencies(cast("LatencyFigures", fields))

    def _add_send_delays(self, record: GeneratorFigures) -> None:
        phase, second_ms = record["phase"], record["second"]
        delays_us, counts = record["send_delays_us"], record["counts"]
        self._send_delays_us[phase].add(second_ms, delays_us, counts)
        at, of_phase = second_ms // 1000, self._waited_us[phase]
        full_us, all_us = of_phase.get(at, (0, 0))
        all_us += sum(max(0, us) * n for us, n in zip(delays_us, counts, strict=True))
        _put(of_phase, at, (full_us + record.get("queue_full_us", 0), all_us))

    def _queue_full_share(self, phase: str) -> dict[int, float]:
        """The share of the send delays of each second for which the Kafka client's queue was full.
        Empty for other transports, where a gateway is in between."""
        if self._request.workload.transport != "kafka":
            return {}
        return {
            at: min(1.0, full_us / all_us)
            for at, (full_us, all_us) in self._waited_us[phase].items()
            if full_us and all_us
        }

    def _add_latencies(self, record: LatencyFigures) -> None:
        phase, definition, second_ms = record["phase"], record["definition"], record["second"]
        if definition not in DEFINITIONS:
            return
        place = record["pipeline"], record["stage"]
        of_place = self._latencies[phase, definition, place]
        of_place.add(second_ms, record["latencies_ms"], record["counts"])
        warm_up = self._latencies.get(("warm_up", definition, place))
        if phase == "measure" and warm_up is not None:
            warm_up.close_before(second_ms - 1000 * WARM_UP_OPEN_SECONDS)

    def _add_use(self, record: ResourceFigures) -> None:
        part = record["pipeline"] or record["service"]
        middle_ms = record["time"] - 500 * record["interval_s"]
        at = int(middle_ms // 1000)
        use = Use(
            record["cpu_seconds"],
            record["interval_s"],
            record.get("run_queue_wait_seconds"),
            record.get("steal_seconds"),
            record.get("cpu_pressure_seconds"),
        )
        of_part = self._uses["broker" if part == BROKER else part]
        _put(of_part, at, added((of_part[at], use)) if at in of_part else use)
        if record["pipeline"]:
            sample = HeapSample(
                record["interval_s"],
                record["cpu_seconds"],
                record.get("gc_seconds"),
                record.get("heap_used_bytes"),
                record.get("heap_max_bytes"),
            )
            _put(self._heaps[part], at, sample)

    def add_lag(self, at: int, lag_ms: int) -> None:
        """Add a lag of the evaluator, reported in a second."""
        since = max(self._told_behind_s, at - LONGEST_TELLING_S)
        for second in range(since + 1, at + 1):
            _put(self._behind_ms, second, float(lag_ms))
        self._told_behind_s = at

    def evidence(self, phases: PhasePlan, phase: str = "measure") -> Evidence:
        """The evidence of a phase of the load, up to its last output."""
        by_definition: dict[str, dict[tuple[str, str], dict[int, float]]] = defaultdict(dict)
        for (of, definition, place), values in self._latencies.items():
            if of == phase:
                by_definition[definition][place] = values.of_whole_seconds()
        event_time_ms = by_definition["event_time"]
        ends = [
            phases.measure_end_ms // 1000,
            *(at + 1 for of in event_time_ms.values() for at in of),
        ]
        begin_ms = phases.measure_start_ms if phase == "measure" else phases.load_start_ms
        return Evidence(
            event_time_ms=event_time_ms,
            latest_ms=by_definition["latest"],
            send_ms={at: us / 1000 for at, us in self._send_delays_us[phase].by_second().items()},
            allowed_send_ms=self._request.workload.validity.max_send_delay_p99_ms,
            queue_full_share=self._queue_full_share(phase),
            behind_ms=self._behind_ms,
            uses=self._between(begin_ms // 1000, max(ends)),
            cores=self.cores,
            others_allowed=self._others_allowed(),
            load_end_s=phases.load_end_ms // 1000,
        )

    def _others_allowed(self) -> float:
        """The share of others above which the run is disturbed. The limit of a suite's run comes
        from `busy_share`, which says when the run is not valid, so it does not raise this one."""
        allowed = self._request.workload.validity.max_others_share
        if allowed is None:
            return OTHERS_SHARE_OF_RUN
        return min(allowed, OTHERS_SHARE_OF_RUN) if self._request.suite else allowed

    def _between(self, begin_s: int, end_s: int) -> dict[str, dict[int, Use]]:
        result = {
            part: {at: use for at, use in of.items() if begin_s <= at < end_s}
            for part, of in self._uses.items()
        }
        return {part: of for part, of in result.items() if of}

    def attribution(self, phases: PhasePlan) -> Attribution:
        """Causes of the late seconds."""
        return attribute(self.evidence(phases))

    def limited_by(self, phases: PhasePlan, *, by_input_alone: bool = False) -> str:
        """The part that kept the run from keeping up; during the warm-up if the run measured
        nothing. by_input_alone: as in `analysis.lateness.limited_by`. HEAP instead of the
        pipeline if the heap of its JVM limited it."""
        result = (self.evidence(phases, phase) for phase in ("measure", "warm_up"))
        part = next(filter(None, (limited_by(each, by_input_alone) for each in result)), "")
        return self.in_pipeline(phases) if part == PIPELINE else part

    def in_pipeline(self, phases: PhasePlan) -> str:
        """What limited a pipeline from within: HEAP or PIPELINE."""
        return HEAP if limited_pipelines(self._heap(phases)) else PIPELINE

    def _heap(self, phases: PhasePlan) -> dict[str, HeapUse]:
        """The heap of each pipeline with a JVM in the measured phase."""
        begin_s, end_s = phases.measure_start_ms // 1000, phases.measure_end_ms // 1000
        result = {}
        for name, of in sorted(self._heaps.items()):
            each = heap(sample for at, sample in of.items() if begin_s <= at < end_s)
            if each is not None:
                result[name] = each
        return result

    def detail(self, phases: PhasePlan) -> EvidenceDetail:
        """All results, as in a conclusion and a report."""
        result = self.attribution(phases)
        measured = self._between(phases.measure_start_ms // 1000, phases.measure_end_ms // 1000)
        used = room(measured, self.cores)
        heaps = self._heap(phases)
        sentences = (result.said, heap_sentence(heaps), room_sentence(used, self.cores))
        return {
            "disturbed": result.disturbed,
            "late": {
                "seconds": len(result.late),
                "of_seconds": result.seconds,
                "by": result.by,
                "disturbed_by": list(result.disturbed_by),
                "said": " ".join(filter(None, sentences)),
            },
            "room": used,
            "heap": heaps,
        }


def _put(by_second: dict[int, Value], at: int, value: Value) -> None:
    """Store a value; evicts the oldest of too many."""
    by_second[at] = value
    if len(by_second) > MOST_SECONDS:
        del by_second[next(iter(by_second))]


class PhaseFigures:
    """Figures of one run's measured phase. Expects events of that run only."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._bounds: tuple[int, int] | None = None
        self._early: deque[FigureColumns] = deque(maxlen=EARLY)
        self._latencies: defaultdict[tuple[str, str, str], Counter[int]] = defaultdict(Counter)
        self._send_delays_us: Counter[int] = Counter()
        self._verdicts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._turns: Turns | None = None
        self._sent: Counter[str] = Counter()  # by pipeline of the turn; empty without turns
        self._outputs: Counter[tuple[str, str]] = Counter()
        self._used: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._used_in_turn: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._machine_us: Counter[str] = Counter()  # samples of the machine, by turn
        self._memory: Counter[str] = Counter()
        self._heap: Counter[str] = Counter()  # of pipelines with a JVM
        self._lag: Counter[str] = Counter()

    def begins(self, phases: PhasePlan) -> None:
        """Set the times of the measured phase."""
        self._bounds = start_ms, end_ms = phases.measure_start_ms, phases.measure_end_ms
        if self._request.interleaved is not None:
            measured_s = start_ms // 1000, end_ms // 1000
            load_start_s = phases.load_start_ms // 1000
            self._turns = Turns(self._request.interleaved, load_start_s, measured_s)
        while self._early:
            self._add_timed(self._early.popleft())

    def add(self, figures: FigureColumns) -> None:
        """Add figures of the run."""
        topic, fields = figures.topic, figures.fields
        if topic == catalogue.LATENCY and fields["phase"] == "measure":
            latencies = cast("LatencyFigures", fields)
            place = latencies["pipeline"], latencies["stage"], latencies["definition"]
            _count(self._latencies[place], latencies["latencies_ms"], latencies["counts"])
        elif topic == catalogue.VERDICTS and fields["phase"] == "measure":
            of_stage = self._verdicts[fields["pipeline"], fields["stage"]]
            of_stage.update({name: fields[name] for name in protocol.VERDICTS})
        elif topic in TIMED or (topic == catalogue.GENERATOR and fields["phase"] == "measure"):
            if self._bounds is None:
                self._early.append(figures)
            else:
                self._add_timed(figures)

    def _add_timed(self, figures: FigureColumns) -> None:
        match figures.topic:
            case catalogue.GENERATOR:
                self._add_sent(cast("GeneratorFigures", figures.fields))
            case catalogue.THROUGHPUT:
                self._add_outputs(cast("ThroughputFigures", figures.fields))
            case catalogue.RESOURCES:
                self._add_use(cast("ResourceFigures", figures.fields))
            case _:
                self._add_progress(cast("ProgressFigures", figures.fields))

    def _is_measured(self, at_ms: int) -> bool:
        assert self._bounds is not None
        return self._bounds[0] <= at_ms < self._bounds[1]

    def _add_sent(self, record: GeneratorFigures) -> None:
        _count(self._send_delays_us, record["send_delays_us"], record["counts"])
        self._sent[self._turn(record["second"])] += record["acknowledged"]

    def _add_outputs(self, record: ThroughputFigures) -> None:
        if record["pipeline"] and self._is_measured(record["second"]):
            self._outputs[record["pipeline"], record["stage"]] += record["records"]

    def _add_progress(self, record: ProgressFigures) -> None:
        name, lag = record["pipeline"], record.get("lag_records")
        if name and lag is not None and self._is_measured(record["time"]):
            self._lag[name] = max(self._lag[name], lag)

    def _add_use(self, record: ResourceFigures) -> None:
        if not self._is_measured(record["time"]):
            return
        if record["service"] == MACHINE:
            self._machine_us[self._turn_of_sample(record)] += round(1e6 * record["interval_s"])
        name = record["pipeline"]
        if not name:
            return
        cpu_us, us = round(1e6 * record["cpu_seconds"]), round(1e6 * record["interval_s"])
        self._used[name] += Counter(cpu_us=cpu_us, us=us)
        self._memory[name] = max(self._memory[name], record["memory_bytes"])
        heap_bytes = record.get("heap_used_bytes")
        if heap_bytes is not None:
            self._heap[name] = max(self._heap[name], heap_bytes)
        if self._turn_of_sample(record) in ("", name):
            self._used_in_turn[name] += Counter(cpu_us=cpu_us, us=us)

    def _turn_of_sample(self, record: ResourceFigures) -> str:
        """The turn in which the middle of a sample lies."""
        return self._turn(record["time"] - 500 * record["interval_s"])

    def _turn(self, at_ms: float) -> str:
        """The pipeline of the turn; empty without turns."""
        return self._turns.of(int(at_ms // 1000)) if self._turns else ""

    def _seconds_of(self, pipeline: str) -> float:
        """Measured seconds of a pipeline."""
        if self._turns is not None:
            return len(self._turns.seconds_of(pipeline))
        return (self._bounds[1] - self._bounds[0]) / 1000 if self._bounds else 0.0

    def figures(
        self,
        drained: Drained | None = None,
        lost: Mapping[str, Mapping[str, int]] | None = None,
        *,
        early: bool = False,
    ) -> Figures:
        """The figures so far. drained: the final verdicts; lost: of the whole load, by pipeline and
        stage, None if unknown. early: without them, count the verdicts so far."""
        final = drained.verdicts if drained else {}
        return Figures(
            input=self._input(),
            pipelines={
                pipeline.name: PipelineReport(
                    resources=self._resources(pipeline.name, ended=drained is not None),
                    lag_records=Lag(max=self._lag.get(pipeline.name)),
                    stages={
                        stage: self._stage(
                            pipeline.name,
                            stage,
                            final,
                            (lost or {}).get(pipeline.name, {}).get(stage),
                            early=early and not final,
                        )
                        for stage in self._request.stages_of(pipeline)
                    },
                )
                for pipeline in self._request.pipelines
            },
        )

    def _input(self) -> Input:
        seconds = (self._bounds[1] - self._bounds[0]) / 1000 if self._bounds else 0.0
        sent, delays_us = self._sent.total(), ranked(self._send_delays_us)
        p50, p99, most = (
            None if delay_us is None else delay_us / 1000
            for delay_us in (delays_us[name] for name in ("p50", "p99", "max"))
        )
        return Input(
            records=sent,
            records_per_second=sent / seconds if seconds else None,
            send_delay_ms=SendDelay(p50=p50, p99=p99, max=most),
        )

    def _stage(
        self,
        pipeline: str,
        stage: str,
        final: dict[str, dict[str, dict[str, int]]],
        lost: int | None,
        *,
        early: bool,
    ) -> StageReport:
        seconds = self._seconds_of(pipeline)
        counts = dict(final.get(pipeline, {}).get(stage, {}))
        arrived = sum(count for verdict, count in counts.items() if verdict != "missing")
        return StageReport(
            verdicts=self._verdicts[pipeline, stage] if early else counts,
            outputs=arrived if counts else None,
            lost=lost,
            records_per_second=self._outputs[pipeline, stage] / seconds if seconds else None,
            latency_ms={
                definition: Latency.model_validate(summary(counted))
                for definition in protocol.DEFINITIONS
                if (counted := self._latencies[pipeline, stage, definition])
            },
        )

    def _resources(self, pipeline: str, *, ended: bool) -> Resources:
        """ended: treat absent samples as missing; otherwise they may still arrive."""
        used, in_turn = self._used[pipeline], self._used_in_turn[pipeline]
        if not used["us"]:
            return Resources()
        turn = pipeline if self._turns else ""
        cost = core_seconds_per_million_records(
            in_turn["cpu_us"] / 1e6,
            self._sent[turn],
            machine_s=self._machine_us[turn] / 1e6,
            measured_s=self._seconds_of(pipeline) if ended else 0.0,
        )
        return Resources(
            cpu_cores=used["cpu_us"] / used["us"],
            memory_bytes_max=self._memory[pipeline],
            heap_used_bytes_max=self._heap.get(pipeline),
            core_seconds_per_million_records=cost,
        )


def _count(into: Counter[int], values: list[int], counts: list[int]) -> None:
    for value, count in zip(values, counts, strict=True):
        into[value] += count
