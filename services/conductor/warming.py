"""Judges whether the pipelines of a run are steady, from events of the bus. Pure.

Keeps by second the median and the 95th percentile of each stage, the processor time of each
pipeline, of its compilers and of the generators, and the number of records sent.

A generator does the same work for each record. If its processor time per record changes, the
performance of the machine has changed. This explains a change of a pipeline that is not larger.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import cast

from analysis.lateness import GENERATOR
from analysis.steadiness import (
    BLOCKS,
    COST,
    JIT_SHARE,
    P50,
    P95,
    Points,
    SteadyFigure,
    SteadyVerdict,
    agree,
    judge,
    share_of_compilers,
    together,
)
from schemas import catalogue
from schemas.events import FigureColumns
from schemas.figures import ResourceFigures
from schemas.percentiles import PackedCounts, quantile
from schemas.protocol import RunRequest
from schemas.workload import Workload

LEAST_BLOCK_S, MOST_BLOCK_S = 4, 40
LOOK_BACK_S = 30  # warm-up judged like a measured phase if blocks differ by chance
KNOWN_AFTER_MS = 2_000  # delay until the outputs of a second are on the bus
OPEN_S = 10  # seconds that may still get counts
MOST_SECONDS = 4_096  # every other one is dropped beyond this
PER_MILLION = 1_000_000
TOO_FEW = "there are too few seconds with outputs"
Place = tuple[str, str]
What = tuple[Place, SteadyFigure]


@dataclass(frozen=True)
class Steadiness:
    """steady: None if too little is known, for the reason in unknown. moving: what was not steady,
    a sentence each, largest change first; still: the same in the present tense. of_machine:
    changes of processor time that the machine's performance explains, a sentence each."""

    steady: bool | None
    moving: tuple[str, ...] = ()
    still: tuple[str, ...] = ()
    unknown: str = ""
    of_machine: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChangingFigure:
    """A figure that changes, in the past and the present tense. size: by what factor."""

    sentence: str
    still: str
    size: float


class SecondValues(dict[int, float]):
    """Values by second, thinned out when they become many."""

    _every = 1

    def put(self, second: int, value: float) -> None:
        """Store the value of a second."""
        if second % self._every == 0:
            self[second] = value
        if len(self) > MOST_SECONDS:
            self._every *= 2
            for at in [at for at in self if at % self._every]:
                del self[at]


class Levels:
    """Median and 95th percentile of a stage by second."""

    def __init__(self) -> None:
        self._p50, self._p95 = SecondValues(), SecondValues()
        self._open: dict[int, PackedCounts] = {}
        self._changed: set[int] = set()
        self._newest = 0

    def add(self, second: int, values: list[int], counts: list[int]) -> None:
        """Add outputs of a second; outputs of old seconds are ignored."""
        self._newest = max(self._newest, second)
        if second < self._newest - OPEN_S:
            return
        self._open.setdefault(second, PackedCounts()).add(values, counts)
        self._changed.add(second)
        if min(self._open) < self._newest - OPEN_S:
            self._settle()

    def of(self, figure: SteadyFigure) -> Points:
        """P50 or P95 by second."""
        self._settle()
        return self._p50 if figure is P50 else self._p95

    def _settle(self) -> None:
        for second in self._changed:
            counts = self._open[second].counts()
            for points, level in ((self._p50, 0.5), (self._p95, 0.95)):
                points.put(second, float(quantile(counts, level) or 0))
        self._changed.clear()
        for past in [at for at in self._open if at < self._newest - OPEN_S]:
            del self._open[past]


class Used:
    """Processor seconds of a pipeline and of its compilers by second."""

    def __init__(self) -> None:
        self.cpu_s, self.jit_s = SecondValues(), SecondValues()

    def add(self, record: ResourceFigures) -> None:
        """Add a sample; it counts for the second that contains the middle of its interval."""
        interval_s = record["interval_s"]
        second = int(record["time"] / 1000 - interval_s / 2)
        self.cpu_s.put(second, record["cpu_seconds"] / interval_s)
        if (jit_s := record.get("jit_seconds")) is not None:
            self.jit_s.put(second, jit_s / interval_s)

    def per_million(self, sent: Points) -> Points:
        """Core-seconds per million records by second, where records were sent."""
        return {at: PER_MILLION * self.cpu_s[at] / sent[at] for at in self.cpu_s if sent.get(at)}


class Warming:
    """State of one run. Expects events of that run only."""

    def __init__(self, request: RunRequest) -> None:
        self._places = [
            (pipeline.name, stage)
            for pipeline in request.pipelines
            for stage in request.stages_of(pipeline)
        ]
        content = request.workload.content
        slides = [
            math.ceil(each.window.slide_s * content.second_ms / 1000)
            for each in request.domain.stages
            if each.window is not None and each.name in request.stages
        ]
        self._cycle_s = request.workload.load.cycle_s
        turns = request.interleaved
        self._turn_s = turns.block_s if turns is not None else 0
        longest_s = max([LEAST_BLOCK_S, self._cycle_s, self._turn_s, *slides])
        self.block_s = min(MOST_BLOCK_S, longest_s)
        self._look_back_s = max(LOOK_BACK_S, self._turn_s or BLOCKS * self.block_s)
        self._changes = what_changes(request.workload)
        self._levels: defaultdict[Place, Levels] = defaultdict(Levels)
        self._used: defaultdict[str, Used] = defaultdict(Used)
        self._sent = SecondValues()
        self._generators: defaultdict[str, Used] = defaultdict(Used)  # by observer
        self._observers: dict[str, str] = {}  # by pipeline
        self._first_s, self._newest_s = math.inf, 0

    def add(self, figures: FigureColumns) -> None:
        """Add figures of the run."""
        topic, record = figures.topic, figures.fields
        if topic == catalogue.RESOURCES and record["pipeline"]:
            self._used[record["pipeline"]].add(cast("ResourceFigures", record))
            self._observers[record["pipeline"]] = record["producer"]
        elif topic == catalogue.RESOURCES and record["service"] == GENERATOR:
            self._generators[record["producer"]].add(cast("ResourceFigures", record))
        elif topic == catalogue.GENERATOR:
            second = record["second"] // 1000
            self._sent.put(second, self._sent.get(second, 0) + record["acknowledged"])
        elif topic == catalogue.LATENCY and record["definition"] == "latest":
            place = record["pipeline"], record["stage"]
            second = record["second"] // 1000
            self._first_s = min(self._first_s, second)
            self._newest_s = max(self._newest_s, second)
            self._levels[place].add(second, record["latencies_ms"], record["counts"])

    def look(self, until_ms: int) -> Steadiness:
        """Whether everything was steady at the end of a warm-up: in its last blocks or, if these
        differ by chance or have too few outputs, over the last _look_back_s. Both are times of a
        pipeline's own turns."""
        end_s = until_ms // 1000
        compilers_s = BLOCKS * max(self.block_s, self._turn_s)  # with a turn of each pipeline
        compilers = self._compilers(end_s - compilers_s, end_s)
        steadiness = told_of(self._blocks(end_s), compilers)
        if not steadiness.steady and self._first_s <= end_s - self._look_back_s:
            last_s = min(self.block_s, self._look_back_s // BLOCKS)
            result = self._looked_back(end_s, 0 if steadiness.steady is None else last_s)
            other = told_of(result, compilers)
            steadiness = other if other.steady else steadiness
        return steadiness

    def conclude(self, begin_ms: int, until_ms: int) -> Steadiness:
        """Whether a run was steady while it was measured. A figure that the measured phase is too
        short to judge is judged by the end of the warm-up."""
        begin_s, end_s = begin_ms // 1000, min(until_ms // 1000, self._newest_s + 1)
        result = self._blocks(begin_s)
        if self._changes:
            compilers = self._compilers(begin_s - BLOCKS * self.block_s, begin_s)
            steadiness = told_of(result, compilers)
            return replace(steadiness, unknown=steadiness.unknown and self._changes)
        longer = self._judged(begin_s - BLOCKS * self.block_s, end_s)
        for what, measured in self._judged(begin_s, end_s).items():
            result[what] = together(measured, longer[what], result[what])
        return told_of(result, self._compilers(end_s - (end_s - begin_s) // 3, end_s))

    def _blocks(self, end_s: int) -> dict[What, SteadyVerdict]:
        result = {
            what: agree(self._of_turns(what, points, end_s), end_s, self.block_s, what[1])
            for what, points in self._figures()
        }
        return self._of_pipelines(result, end_s - BLOCKS * self.block_s, end_s)

    def _looked_back(self, end_s: int, last_s: int) -> dict[What, SteadyVerdict]:
        begin_s = end_s - self._look_back_s
        result = {
            what: judge(
                self._of_turns(what, points, end_s),
                begin_s,
                end_s,
                what[1],
                cycle_s=self._cycle_s,
                last_s=last_s,
            )
            for what, points in self._figures()
        }
        return self._of_pipelines(result, begin_s, end_s)

    def _judged(self, begin_s: int, end_s: int) -> dict[What, SteadyVerdict]:
        result = {
            what: judge(points, begin_s, end_s, what[1], cycle_s=self._cycle_s)
            for what, points in self._figures()
        }
        return self._of_pipelines(result, begin_s, end_s)

    def _of_pipelines(
        self, result: dict[What, SteadyVerdict], begin_s: int, end_s: int
    ) -> dict[What, SteadyVerdict]:
        """The judgements of a time, without changes that the machine's performance explains. Those
        of pipelines in turns are returned as they are."""
        return result | {
            what: replace(each, moved=None, of_machine=each.moved)
            for what, each in result.items()
            if what[1] is COST
            and each.moved is not None
            and not self._turn_s
            and each.moved.follows(self._generators_changed(what[0][0], begin_s, end_s))
        }

    def _generators_changed(self, pipeline: str, begin_s: int, end_s: int) -> float:
        """By what factor the generators' processor time per record changed from the first to the
        last third of a time, on the machine of a pipeline; 1 if that is not known."""
        used = self._generators.get(self._observers.get(pipeline, ""))
        points = used.per_million(self._sent) if used is not None else {}
        third_s = (end_s - begin_s) // BLOCKS
        first = [value for at, value in points.items() if begin_s <= at < begin_s + third_s]
        last = [value for at, value in points.items() if end_s - third_s <= at < end_s]
        return mean(last) / mean(first) if last and sum(first) else 1.0

    def _figures(self) -> Iterator[tuple[What, Points]]:
        """Every figure by second."""
        for place in self._places:
            for figure in (P50, P95):
                yield (place, figure), self._levels[place].of(figure)
        for pipeline in dict.fromkeys(name for name, _ in self._places):
            sent: Points = self._sent
            if self._turn_s:
                turns = set(self._turns(pipeline))
                sent = {at: records for at, records in sent.items() if at in turns}
            if points := self._used[pipeline].per_million(sent):
                yield ((pipeline, ""), COST), points

    def _of_turns(self, what: What, points: Points, end_s: int) -> Points:
        """Values of an interleaved pipeline without the time between its turns, up to a second."""
        if not self._turn_s:
            return points
        turns = [at for at in self._turns(what[0][0]) if at < end_s]
        first_s = end_s - len(turns)
        return {first_s + n: points[at] for n, at in enumerate(turns) if at in points}

    def _turns(self, pipeline: str) -> list[int]:
        """The seconds in which an interleaved pipeline publishes: those of its turns."""
        places = [place for place in self._places if place[0] == pipeline]
        return sorted({at for place in places for at in self._levels[place].of(P50)})

    def _compilers(self, begin_s: int, end_s: int) -> list[ChangingFigure]:
        """Pipelines whose compilers still use a relevant part of the processor time."""
        result = []
        for pipeline, used in self._used.items():
            share = share_of_compilers(used.jit_s, used.cpu_s, begin_s, end_s)
            if share is not None and share > JIT_SHARE:
                took = f"compilers took {share:.0%} of its CPU time"
                takes = f"compilers of {pipeline} still take {share:.0%} of its CPU time"
                result.append(ChangingFigure(f"{pipeline}: {took}", takes, 1 + share))
        return result


def told_of(
    result: Mapping[What, SteadyVerdict], compilers: Sequence[ChangingFigure]
) -> Steadiness:
    """Combine all figures into one result."""
    findings = [
        ChangingFigure(
            f"{' '.join(filter(None, place))}: {each.moved.sentence}",
            each.moved.still(place[1] or place[0]),
            each.moved.size,
        )
        for (place, figure), each in result.items()
        if each.moved is not None
        and each.certain
        and not (figure is P95 and result[place, P50].moved)
    ]
    findings = sorted([*findings, *compilers], key=lambda finding: -finding.size)
    of_machine = tuple(
        f"{' '.join(filter(None, place))}: {each.of_machine.sentence}"
        for (place, _figure), each in result.items()
        if each.of_machine is not None
    )
    if findings:
        sentences = tuple(finding.sentence for finding in findings)
        stills = tuple(finding.still for finding in findings)
        return Steadiness(False, sentences, stills, of_machine=of_machine)
    if all(each.certain for each in result.values()):
        return Steadiness(True, of_machine=of_machine)
    names = dict.fromkeys(
        " ".join(place) for (place, _), each in result.items() if not each.certain
    )
    return Steadiness(None, unknown=f"{TOO_FEW} of {', '.join(names).strip()}")


def what_changes(workload: Workload) -> str:
    """What the workload changes on purpose during the measured phase; empty if nothing."""
    if not workload.load.IS_PERIODIC or workload.pipelines_start_s:
        return "the load is neither constant nor periodic"
    return "a process is killed in the measured phase" if workload.kills else ""
