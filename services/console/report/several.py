"""Results about more than one run, or about pipelines that took turns: interleaving, repetition,
comparison with a baseline, series with increasing numbers of workers.

Conclusions about several runs are published, and read back for the report of each of them. The
views `repetitions` and `comparisons` show their key `rows`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from analysis import interleaving
from analysis.comparability import Request
from analysis.costs import COST, core_seconds_per_million_records, used_by_others
from analysis.described import row
from analysis.interleaving import Block, Turns
from analysis.intervals import BETTER, SAME, UNKNOWN, WORSE, Interval
from analysis.thresholds import outcome
from schemas.events import BaselineCompared, Conclusion, PipelinesInterleaved, RunsRepeated
from schemas.protocol import MACHINE, Interleaving
from schemas.report import (
    BaselineComparison,
    BlockPair,
    Bounded,
    Compared,
    Difference,
    Interleaved,
    Median,
    Number,
    Repetition,
    Report,
    RunOutcome,
    Scalability,
    Workers,
)
from schemas.threshold import SUSTAINABLE_RATE
from services.readmodel import runs, seconds
from services.readmodel.seconds import BySecond

REPETITION, INTERLEAVED, BASELINE = "repetition", "interleaved", "baseline"
DESCRIBED = "described"  # has an interval of its own, but decides nothing
FIGURES = ("p50", "p99")  # of a series
OTHERS = "other processes"
Sides = list[dict[str, Number]]  # figures of both blocks of a pair
Row = dict[str, Any]  # of the key `rows` of a conclusion


# Pipelines that took turns


def with_interleaved(url: str, request: Request, report: Report) -> Report:
    """The report with `interleaved`; None if the pipelines were not measured alternately, or if its
    seconds have expired. Rates and costs of a pipeline are those of its own turns. Raises
    QueryError."""
    turns = turns_of(url, report.run_id, request)
    if turns is None:
        return report.model_copy(update={"interleaved": None})
    usage = UsageSamples.of(url, report.run_id)
    pipelines = {}
    for name, pipeline in report.pipelines.items():
        own = turns.seconds_of(name)
        more_often = len(range(*turns.measured_s)) / max(1, len(own))
        stages = {
            stage: cell.model_copy(
                update={"records_per_second": (cell.records_per_second or 0.0) * more_often}
            )
            for stage, cell in pipeline.stages.items()
        }
        used = pipeline.resources
        if used.is_known:
            used = used.model_copy(
                update={COST: usage.cost(name, own), "core_seconds_interval": None}
            )
        pipelines[name] = pipeline.model_copy(update={"stages": stages, "resources": used})
    report = report.model_copy(update={"pipelines": pipelines})
    latencies = seconds.latencies_by_input(url, report.run_id)
    decided = None
    if latencies and not report.seconds_expired:
        blocks = blocks_of(turns)
        costs = usage.by_block(blocks, turns.said.edge_s)
        decided = interleaved(latencies, turns.said, blocks, report, costs)
    return report.model_copy(update={"interleaved": decided})


def turns_of(url: str, run_id: str, request: Request) -> Turns | None:
    """The turns of the pipelines; None if they were measured at once or not at all. Raises
    QueryError."""
    asked = request.get("interleaved")
    if asked is None:
        return None
    phases = runs.phases_of(url, run_id)
    if "warm_up" not in phases or "measure" not in phases:
        return None
    warm_up, measure = phases["warm_up"], phases["measure"]
    measured_s = (measure.start_ms or 0) // 1000, (measure.end_ms or 0) // 1000
    start_s = (warm_up.start_ms or 0) // 1000
    return Turns(Interleaving.model_validate(asked), start_s, measured_s)


@dataclass(frozen=True)
class UsageSamples:
    """Resource samples of the pipelines and of the machine, and input records by second."""

    samples: list[seconds.CpuSample]
    records: dict[int, int]

    @classmethod
    def of(cls, url: str, run_id: str) -> "UsageSamples":
        """Of a run. Raises QueryError."""
        return cls(seconds.samples(url, run_id), seconds.input_records(url, run_id))

    def cost(self, pipeline: str, own: set[int]) -> float | None:
        """Core-seconds per million records of a pipeline in some seconds of its turns, from the
        resource samples whose midpoint is in one."""
        used = [
            sample
            for sample in self.samples
            if sample.pipeline in (pipeline, "") and _middle_s(sample) in own
        ]
        return core_seconds_per_million_records(
            sum(sample.cpu_seconds for sample in used if sample.pipeline),
            sum(self.records.get(second, 0) for second in own),
            machine_s=sum(sample.interval_s for sample in used if not sample.pipeline),
            measured_s=len(own),
        )

    def by_block(self, blocks: Sequence[Block], edge_s: int) -> dict[Block, float]:
        """The cost in the middle of each block; blocks without samples are omitted."""
        sampled = {_middle_s(sample) for sample in self.samples if sample.pipeline}
        costs = {}
        for block in blocks:
            own = set(range(block.start_s + edge_s, block.end_s - edge_s))
            cost = self.cost(block.pipeline, own) if sampled & own else None
            if cost is not None:
                costs[block] = cost
        return costs


def _middle_s(sample: seconds.CpuSample) -> int:
    return int(sample.at_s - sample.interval_s / 2)


def blocks_of(turns: Turns) -> list[Block]:
    """The blocks that were measured completely."""
    asked = turns.said
    first_s = turns.load_start_s + asked.first_s
    return interleaving.blocks(asked.order, asked.block_s, first_s, turns.measured_s)


def interleaved(
    latencies: Mapping[tuple[str, str], BySecond],
    turns: Interleaving,
    blocks: list[Block],
    report: Report,
    costs: Mapping[Block, float],
) -> Interleaved:
    """The decision, given the latencies of each pipeline and stage by second of the latest input,
    and the cost of each block."""
    first, second = tuple(dict.fromkeys(turns.order))
    pairs = interleaving.paired(blocks, first, second)
    common = report.pipelines[second].stages
    stages = [stage for stage in report.pipelines[first].stages if stage in common]
    values = {
        stage: _figures(
            [latencies.get((name, stage), {}) for name in (first, second)], pairs, turns
        )
        for stage in stages
    }
    values[""] = [
        [{COST: costs[block]} if block in costs else {} for block in pair] for pair in pairs
    ]
    return Interleaved(
        order=list(turns.order),
        block_s=turns.block_s,
        edge_s=turns.edge_s,
        blocks=len(blocks),
        pairs=[
            BlockPair(
                start_s=[block.start_s for block in pair],
                stages={stage: values[stage][place] for stage in stages},
                costs=values[""][place],
            )
            for place, pair in enumerate(pairs)
        ],
        **interleaving.decision(turns.order, values, [report]),
    )


def _figures(
    of_both: Sequence[BySecond], pairs: Sequence[tuple[Block, Block]], turns: Interleaving
) -> list[Sides]:
    """For each pair, the figures of the first pipeline's block and of the second's."""
    sides = []
    for side, by_second in enumerate(of_both):
        own = [pair[side] for pair in pairs]
        outputs = interleaving.outputs_of(by_second, own, turns.edge_s)
        sides.append([interleaving.figures_of(outputs[block]) for block in own])
    return [list(pair) for pair in zip(*sides, strict=True)]


# Conclusions about several runs


def conclusions_of(report: Report) -> Iterator[Conclusion]:
    """What a report says about more than its own run."""
    run_id = report.run_id
    if repeated := report.repetition:
        yield RunsRepeated(
            run_id=run_id,
            invalid_reasons=() if report.valid else tuple(report.invalid_reasons),
            runs=tuple(run.run_id for run in repeated.runs),
            rows=tuple(_repeated_rows(repeated)),
            repetition=repeated.as_json(),
        )
    if turns := report.interleaved:
        first, second = dict.fromkeys(turns.order)
        yield PipelinesInterleaved(
            run_id=run_id,
            runs=tuple(turns.runs or [run_id]),
            rows=tuple({"pipeline": second} | row for row in _interleaved_rows(turns)),
            against=first,
            said=turns.said,
            interleaved=turns.model_copy(update={"pairs": []}).as_json(),
        )
    if compared := report.baseline:
        yield BaselineCompared(
            run_id=run_id,
            invalid_reasons=tuple(compared.left_out),
            runs=(run_id,),
            rows=tuple(_baseline_row(figure) for figure in compared.rows),
            against=compared.name,
            said=compared.said,
            baseline=compared.as_json(),
        )


def with_conclusions(url: str, report: Report) -> Report:
    """The report with what was published about its run: `repetition` and `baseline`, and the
    decision over alternating pipelines if that is of several runs or cannot be computed anymore.
    The run of which the repetition was reported is INVALID if the repetition is. Raises
    QueryError."""
    for concluded in runs.conclusions_about(url, report.run_id):
        kind, detail = concluded.kind, concluded.detail
        changes: dict[str, Any] = {}
        if kind == REPETITION:
            changes[kind] = Repetition.model_validate(detail[kind])
            if concluded.run_id == report.run_id and concluded.invalid_reasons:
                changes |= {"valid": False, "invalid_reasons": concluded.invalid_reasons}
        elif kind == BASELINE:
            changes[kind] = BaselineComparison.model_validate(detail[kind])
        elif report.interleaved is None or detail["runs"] != [report.run_id]:
            published = Interleaved.model_validate(detail[kind])
            pairs = (report.interleaved or published).pairs  # of this run
            changes[kind] = published.model_copy(update={"pairs": pairs})
        report = report.model_copy(update=changes)
    return report


def _repeated_rows(repeated: Repetition) -> Iterator[Row]:
    for pipeline, medians in repeated.pipelines.items():
        for stage, cell in medians.stages.items():
            for definition, figures in cell.latency_ms.items():
                for figure, over_runs in figures.items():
                    yield _repeated_row((pipeline, stage, definition, figure), over_runs)
        if cost := medians.resources.get(COST):
            yield _repeated_row((pipeline, "", "", COST), cost)
    if search := repeated.search:
        low, high = search.interval_per_second
        rates = Median(
            median=search.median_per_second,
            low=low,
            high=high,
            confidence=None,
            values=search.rates_per_second,
        )
        pipeline = next(iter(repeated.pipelines), "")
        yield _repeated_row((pipeline, "", "", SUSTAINABLE_RATE), rates)


def _repeated_row(place: tuple[str, str, str, str], figure: Median) -> Row:
    where = dict(zip(("pipeline", "stage", "definition", "figure"), place, strict=True))
    return where | figure.model_dump(exclude={"values"}) | {"count": len(figure.values)}


def _interleaved_rows(turns: Interleaved) -> Iterator[Row]:
    for stage, figures in turns.differences.items():
        for figure, difference in figures.items():
            both = [pair.stages[stage] for pair in turns.pairs]
            pairs = [(a[figure], b[figure]) for a, b in both if figure in a and figure in b]
            before, after = map(mean, zip(*pairs, strict=True))
            interval = Interval(difference.value, difference.low, difference.high)
            described = row(stage, figure, before, after, interval)
            yield described.as_json() | {"verdict": _verdict(difference)}
    for described in turns.described:
        yield described.as_json() | {"verdict": DESCRIBED}


def _verdict(difference: Difference) -> str:
    """Of a difference of latencies. A doubtful one is not real, although its interval excludes
    zero."""
    if difference.real:
        return WORSE if difference.value > 0 else BETTER
    return SAME if difference.low <= 0 <= difference.high else UNKNOWN


def _baseline_row(figure: Compared) -> Row:
    step = Interval(figure.now - figure.before, None, None)
    described = row(figure.stage, figure.figure, figure.before, figure.now, step)
    return described.as_json() | {"pipeline": figure.pipeline, "verdict": figure.verdict}


# Series with increasing numbers of workers


@dataclass(frozen=True)
class SeriesRun:
    """A run of a series."""

    workers: int
    partitions: int
    report: Report


def scalability_of(
    url: str, request: Request, report_of: Callable[[str, str], Report]
) -> Scalability | None:
    """The result of the series of a run, given its request; None for a run outside a series. All of
    it is read from the runs of the series, so it is available for each of them at any time. Raises
    QueryError."""
    scaled = request.get("scaled")
    if scaled is None:
        return None
    series = scaled["series"]
    by_workers: dict[int, list[SeriesRun]] = {}
    for run_id, of_run in runs.runs_of_series(url, series):
        run = SeriesRun(of_run["workers"], of_run["partitions"], report_of(url, run_id))
        by_workers.setdefault(run.workers, []).append(run)
    return judged(
        series, scaled["pipeline"], [by_workers[by_worker] for by_worker in sorted(by_workers)]
    )


def judged(
    series: str,
    pipeline: str,
    by_workers: Sequence[Sequence[SeriesRun]],
    cores_each: float | None = None,
) -> Scalability:
    """The result of a series, given its runs by number of workers. cores_each: the cores of one, of
    a series in which the workers remain and their cores grow."""
    from analysis import scalability  # slow: imports numpy

    sized = scalability.WORKERS
    if cores_each is not None:
        sized = scalability.Sized(
            *(f"× {cores_each:g} cores",) * 2, "numbers of cores", "the machine had these cores"
        )

    points, workers = [], []
    for of_workers in by_workers:
        reports = [run.report for run in of_workers]
        valid = [report for report in reports if report.valid]
        result = valid or reports
        limits = dict.fromkeys(
            report.search.limited_by for report in result if report.search.limited_by
        )
        bounds = [_bounds(report) for report in valid if report.search.rate_per_second]
        free = [room for report in valid if (room := _room(report)) is not None]
        free_cores, taken = min(free, key=lambda room: room[0]) if free else (None, {})
        number, cores = of_workers[0].workers, reports[0].environment.get("cores")
        points.append(
            scalability.ScalingPoint(
                number, tuple(bounds), tuple(limits), cores, free_cores, taken, cores_each or 1.0
            )
        )
        workers.append(
            Workers(
                workers=number,
                partitions=of_workers[0].partitions,
                runs=[_run(report) for report in reports],
                rate_per_second=_rate(bounds),
                limited_by=list(limits),
                free_cores=free_cores,
                stages=_stages(valid),
                core_seconds_per_million_records=_over_runs([_cost(each) for each in valid]),
            )
        )
    return scalability.scalability(series, pipeline, points, workers, sized)


def _bounds(report: Report) -> tuple[Number, Number | None]:
    low, high = report.search.interval_per_second
    return low or 0, high


def _run(report: Report) -> RunOutcome:
    search = report.conclusion.search
    rate = {
        "rate_per_second": search and search.rate_per_second,
        "interval_per_second": search and search.interval_per_second,
    }
    return outcome(report).model_copy(update=rate)


def _room(report: Report) -> tuple[float, dict[str, float]] | None:
    """Cores that everything else left to the pipeline, and what that used; None if not known."""
    (pipeline,) = report.pipelines.values()
    services, cores = report.services, report.environment.get("cores")
    others = used_by_others(services | {"the pipeline": pipeline.resources})
    if not cores or not pipeline.resources.is_known or others is None:
        return None
    taken = {name: used.cpu_cores or 0.0 for name, used in services.items() if name != MACHINE}
    return cores - sum(taken.values()) - others, taken | {OTHERS: others}


def _rate(bounds: Sequence[tuple[Number, Number | None]]) -> Bounded | None:
    """The median rate and the bounds that all searches imply."""
    if not bounds:
        return None
    lows = [low for low, _high in bounds]
    highs = [high for _low, high in bounds if high is not None]
    high = max(highs) if len(highs) == len(bounds) else None
    return Bounded(value=median(lows), low=min(lows), high=high)


def _stages(reports: Sequence[Report]) -> dict[str, dict[str, Bounded | None]]:
    """p50 and p99 of each stage, in milliseconds, at the share of the sustainable rate that was
    run."""
    by_stage: dict[str, dict[str, list[Bounded | None]]] = {}
    for report in reports:
        (pipeline,) = report.pipelines.values()
        for stage, cell in pipeline.stages.items():
            for figure in FIGURES if "latest" in cell.latency_ms else ():
                low, high = cell.latest.interval(figure) or (None, None)
                value = Bounded(value=cell.latest.of(figure) or 0, low=low, high=high)
                by_stage.setdefault(stage, {}).setdefault(figure, []).append(value)
    return {
        stage: {figure: _over_runs(values) for figure, values in figures.items()}
        for stage, figures in by_stage.items()
    }


def _cost(report: Report) -> Bounded | None:
    (pipeline,) = report.pipelines.values()
    used = pipeline.resources
    if used.core_seconds_per_million_records is None:
        return None
    low, high = used.core_seconds_interval or (None, None)
    return Bounded(value=used.core_seconds_per_million_records, low=low, high=high)


def _over_runs(figures: Sequence[Bounded | None]) -> Bounded | None:
    """A figure with the interval of its run; for several runs the median, with an interval from
    their variation and its confidence."""
    known = [figure for figure in figures if figure is not None]
    if len(known) < 2:
        return known[0] if known else None
    from analysis.bootstrap import median_confidence, median_interval

    interval = median_interval([figure.value for figure in known])
    return Bounded(
        value=interval.value,
        low=interval.low,
        high=interval.high,
        confidence=median_confidence(len(known)),
    )
