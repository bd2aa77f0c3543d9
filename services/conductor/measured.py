"""Figures of the current run for its thresholds, from events of the bus. Pure.

Covers the measured phase only, for runs with thresholds. Figures per second and per record of
interleaved pipelines cover the pipeline's own turns.
"""

from collections import Counter, defaultdict, deque
from typing import Any

from analysis.costs import core_seconds_per_million_records
from analysis.interleaving import Turns
from schemas import catalogue, protocol
from schemas.events import Drained
from schemas.percentiles import levels, summary
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

TIMED = (catalogue.THROUGHPUT, catalogue.PIPELINE, catalogue.RESOURCES)
# In addition to the topics of every run.
BUS = (catalogue.THROUGHPUT, catalogue.PIPELINE, catalogue.VERDICTS)
# Buffered events that arrive before the phase times are known. Only those of the measured phase
# matter, which begins at most a second before.
EARLY = 500


class PhaseFigures:
    """Figures of one run's measured phase. Expects events of that run only."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._bounds: tuple[int, int] | None = None
        self._early: deque[tuple[str, dict[str, Any]]] = deque(maxlen=EARLY)
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
            self._add_timed(*self._early.popleft())

    def add(self, topic: str, record: dict[str, Any]) -> None:
        """Add one event of the run."""
        if topic == catalogue.LATENCY and record["phase"] == "measure":
            of = self._latencies[record["pipeline"], record["stage"], record["definition"]]
            _count(of, record["latencies_ms"], record["counts"])
        elif topic == catalogue.VERDICTS and record["phase"] == "measure":
            of_stage = self._verdicts[record["pipeline"], record["stage"]]
            of_stage.update({name: record[name] for name in protocol.VERDICTS})
        elif topic in TIMED or (topic == catalogue.GENERATOR and record["phase"] == "measure"):
            if self._bounds is None:
                self._early.append((topic, record))
            else:
                self._add_timed(topic, record)

    def _add_timed(self, topic: str, record: dict[str, Any]) -> None:
        assert self._bounds is not None
        if topic == catalogue.GENERATOR:
            _count(self._send_delays_us, record["send_delays_us"], record["counts"])
            self._sent[self._turn(record["second"])] += record["acknowledged"]
            return
        at_ms = record["second"] if topic == catalogue.THROUGHPUT else record["time"]
        name = record["pipeline"]
        if not self._bounds[0] <= at_ms < self._bounds[1]:
            return
        if topic == catalogue.RESOURCES and record["service"] == MACHINE:
            self._machine_us[self._turn_of_sample(record)] += round(1e6 * record["interval_s"])
        if not name:
            return
        if topic == catalogue.THROUGHPUT:
            self._outputs[name, record["stage"]] += record["records"]
        elif topic == catalogue.RESOURCES:
            self._add_use(name, record)
        elif record.get("lag_records") is not None:
            self._lag[name] = max(self._lag[name], record["lag_records"])

    def _add_use(self, name: str, record: dict[str, Any]) -> None:
        cpu_us, us = round(1e6 * record["cpu_seconds"]), round(1e6 * record["interval_s"])
        self._used[name] += Counter(cpu_us=cpu_us, us=us)
        self._memory[name] = max(self._memory[name], record["memory_bytes"])
        if record.get("heap_used_bytes") is not None:
            self._heap[name] = max(self._heap[name], record["heap_used_bytes"])
        if self._turn_of_sample(record) in ("", name):
            self._used_in_turn[name] += Counter(cpu_us=cpu_us, us=us)

    def _turn_of_sample(self, record: dict[str, Any]) -> str:
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

    def figures(self, drained: Drained | None = None, *, early: bool = False) -> Figures:
        """The figures so far. drained: the final verdicts. early: without them, count the verdicts
        so far."""
        final = drained.verdicts if drained else {}
        return Figures(
            input=self._input(),
            pipelines={
                pipeline.name: PipelineReport(
                    resources=self._resources(pipeline.name, ended=drained is not None),
                    lag_records=Lag(max=self._lag.get(pipeline.name)),
                    stages={
                        stage: self._stage(pipeline.name, stage, final, early and not final)
                        for stage in self._request.stages_of(pipeline)
                    },
                )
                for pipeline in self._request.pipelines
            },
        )

    def _input(self) -> Input:
        seconds = (self._bounds[1] - self._bounds[0]) / 1000 if self._bounds else 0.0
        sent, delays_us = self._sent.total(), levels(self._send_delays_us)
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
        self, pipeline: str, stage: str, final: dict[str, dict[str, dict[str, int]]], early: bool
    ) -> StageReport:
        seconds = self._seconds_of(pipeline)
        counts = dict(final.get(pipeline, {}).get(stage, {}))
        arrived = sum(count for verdict, count in counts.items() if verdict != "missing")
        return StageReport(
            verdicts=self._verdicts[pipeline, stage] if early else counts,
            outputs=arrived if counts else None,
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
