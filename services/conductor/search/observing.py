"""Turns the events of one search step into an Observation. Pure.

events = StepEvents(run_id)
events.add(figures)
events.observation(plan, load_finished, drained, cores, trouble)
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from analysis.lateness import GENERATOR
from schemas import catalogue, protocol
from schemas.events import Drained, Figures, LoadFinished
from schemas.percentiles import quantile
from schemas.protocol import PhasePlan
from services.conductor.search.policies import (
    HOPELESS_SECONDS,
    Observation,
    Second,
    StageObserved,
    hopeless,
)

# An expected output has exactly one of these verdicts; duplicate and unexpected are additional.
EXPECTED = ("exact", "wrong", "missing", "late")
Place = tuple[str, str]  # pipeline, stage


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
        self._cpu: list[tuple[int, str, float, float]] = []
        self._generator_cpu: Counter[int] = Counter()  # microseconds, by time of the sample

    def add(self, figures: Figures) -> None:
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

    def hopeless(self, max_rise: float) -> str:
        """Why this rate need not be observed any longer, or an empty string. Checked once for each
        second of output."""
        latest = max((max(seconds) for seconds in self._newest.values()), default=0)
        if latest == self._looked_at:
            return ""
        self._looked_at = latest
        for (_pipeline, stage), seconds in self._newest.items():
            whole = sorted(seconds)[:-1]
            medians = {at // 1000: float(quantile(seconds[at], 0.5) or 0) for at in whole}
            if hopeless(medians, max_rise):
                return f"The median latency of {stage} keeps rising."
        return ""

    def observation(
        self,
        plan: PhasePlan,
        load: LoadFinished,
        drained: Drained,
        cores: float | None,
        trouble: tuple[str, ...] = (),
    ) -> Observation:
        """The observation. cores: of the pipelines' machine, None if unknown."""
        stages = tuple(
            self._stage(plan, (pipeline, stage), verdicts)
            for pipeline, of_stages in drained.verdicts.items()
            for stage, verdicts in of_stages.items()
        )
        share = self._cpu_share(plan, cores)
        used_us = self._generator_us(plan)
        return Observation(stages, load.intended, load.failed, share, trouble, generator_us=used_us)

    def _stage(self, plan: PhasePlan, place: Place, verdicts: Mapping[str, int]) -> StageObserved:
        start_ms, end_ms = plan.measure_start_ms, plan.measure_end_ms
        by_second = self._latencies[place]
        medians = {
            (second - start_ms) // 1000: float(quantile(counts, 0.5) or 0)
            for second, counts in sorted(by_second.items())
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

    def _cpu_share(self, plan: PhasePlan, cores: float | None) -> float | None:
        """Share used of the cores available to the pipelines: all minus other use of the
        machine."""
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
        return min(1.0, own / left) if left > 0 else 1.0
