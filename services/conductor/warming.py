"""Whether the pipelines of a run are steady, from what the bus says while they warm up. Pure."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from analysis.steadiness import BLOCKS, Block, moving_cpu, moving_latency
from schemas import catalogue
from schemas.percentiles import quantile
from schemas.protocol import RunRequest

LEAST_BLOCK_S, MOST_BLOCK_S = 4, 30
KNOWN_AFTER_MS = 2_000  # outputs of a second are on the bus so long after it
KEPT_BLOCKS = BLOCKS + 2


@dataclass(frozen=True)
class Steadiness:
    """steady: None where too little is known. moving: what was not, in words."""

    steady: bool | None
    moving: tuple[str, ...] = ()


class Warming:
    """What the bus has said of one run's warm-up. It is given events of that run only."""

    def __init__(self, request: RunRequest) -> None:
        self._places = [
            (one.name, stage) for one in request.pipelines for stage in request.stages_of(one)
        ]
        slides = [
            one.window.slide_s
            for one in (request.domain.stages if request.domain else ())
            if one.window is not None and one.name in request.stages
        ]
        self.block_s = min(MOST_BLOCK_S, max([LEAST_BLOCK_S, *slides]))
        self._latencies: defaultdict[tuple[str, str], dict[int, Counter[int]]] = defaultdict(dict)
        self._used: defaultdict[str, dict[int, tuple[float, float]]] = defaultdict(dict)

    def add(self, topic: str, record: dict[str, Any]) -> None:
        """Take in one event of the run."""
        if topic == catalogue.RESOURCES and record["pipeline"]:
            used = self._used[record["pipeline"]]
            used[record["time"]] = record["cpu_seconds"], record["interval_s"]
            self._forget(used, record["time"])
        elif topic == catalogue.LATENCY and record["definition"] == "latest":
            seconds = self._latencies[record["pipeline"], record["stage"]]
            counts = seconds.setdefault(record["second"], Counter())
            for value, count in zip(record["latencies_ms"], record["counts"], strict=True):
                counts[value] += count
            self._forget(seconds, record["second"])

    def _forget(self, by_time: dict[int, Any], newest_ms: int) -> None:
        """Keep what the next look needs; what the measured phase adds makes no difference to it."""
        kept_ms = 1000 * self.block_s * KEPT_BLOCKS
        if len(by_time) > 2 * KEPT_BLOCKS * self.block_s:
            for at_ms in [at for at in by_time if at < newest_ms - kept_ms]:
                del by_time[at_ms]

    def look(self, until_ms: int) -> Steadiness:
        """Whether all stages and pipelines were steady over the last blocks before a time."""
        end_ms = until_ms // 1000 * 1000
        moving = []
        for pipeline, stage in self._places:
            blocks = self._blocks(pipeline, stage, end_ms)
            if blocks is None:
                return Steadiness(None)
            what = moving_latency(blocks)
            moving += [f"{pipeline} {stage}: {what}"] if what else []
        for pipeline in dict.fromkeys(name for name, _ in self._places):
            cores = self._cores(pipeline, end_ms)
            what = moving_cpu(cores) if cores else ""
            moving += [f"{pipeline}: {what}"] if what else []
        return Steadiness(not moving, tuple(moving))

    def _bounds(self, end_ms: int) -> list[tuple[int, int]]:
        length_ms = 1000 * self.block_s
        begin_ms = end_ms - BLOCKS * length_ms
        return [(begin_ms + n * length_ms, begin_ms + (n + 1) * length_ms) for n in range(BLOCKS)]

    def _blocks(self, pipeline: str, stage: str, end_ms: int) -> list[Block] | None:
        """What a stage published in each block; None where one has nothing."""
        found = []
        seconds = self._latencies[pipeline, stage]
        for begin_ms, until_ms in self._bounds(end_ms):
            counts: Counter[int] = Counter()
            for at_ms, one in seconds.items():
                if begin_ms <= at_ms < until_ms:
                    counts.update(one)
            p50, p95 = quantile(counts, 0.5), quantile(counts, 0.95)
            if p50 is None or p95 is None:
                return None
            found.append(Block(p50, p95))
        return found

    def _cores(self, pipeline: str, end_ms: int) -> list[float]:
        """Cores that a pipeline used in each block; empty where that is not known of all."""
        found = []
        for begin_ms, until_ms in self._bounds(end_ms):
            samples = [s for at, s in self._used[pipeline].items() if begin_ms <= at < until_ms]
            length_s = sum(interval_s for _, interval_s in samples)
            if not length_s:
                return []
            found.append(sum(cpu_s for cpu_s, _ in samples) / length_s)
        return found
