"""Summary of repeated runs: the median run, and the uncertainty of its figures. Pure.

Invalid runs are listed but not counted.
"""

from collections import defaultdict
from statistics import median

from analysis.bootstrap import median_confidence, median_interval
from analysis.comparability import outcome_with_doubts
from analysis.costs import COST
from analysis.interleaving import pooled
from schemas.percentiles import LEVELS
from schemas.protocol import DEFINITIONS
from schemas.report import (
    Median,
    Number,
    PipelineReport,
    Recovery,
    RepeatedPipeline,
    RepeatedRecovery,
    RepeatedSearch,
    RepeatedStage,
    Repetition,
    Report,
)

FIGURES = (*LEVELS, "mean")
HEAP = tuple(f"heap_used_bytes_{name}" for name in ("min", "mean", "max"))
RECOVERY = tuple(name for name in Recovery.model_fields if name != "event")
RESOURCES = (COST, "cpu_cores", "memory_bytes_max", *HEAP)


def summarise(reports: list[Report]) -> Report:
    """The report of the median run with `repetition`: the runs, and for each figure of each stage
    and of the resources of each pipeline its median over the valid runs with a bootstrap interval
    and its confidence, which is low for few runs. `interleaved` is the decision from the blocks of
    the valid runs (`interleaving.pooled`). Without a valid run: the last report.
    """
    valid = [report for report in reports if report.valid]
    chosen = median_run(valid) if valid else reports[-1]
    repetition = Repetition(
        runs=list(map(outcome_with_doubts, reports)),
        median_run=chosen.run_id if valid else None,
        confidence=median_confidence(len(valid)),
        intervals_by="how runs vary",
        pipelines=_medians(valid),
        search=_searched(valid),
    )
    changes = {"interleaved": pooled(valid) or chosen.interleaved, "repetition": repetition}
    return chosen.model_copy(update=changes)


def _searched(reports: list[Report]) -> RepeatedSearch | None:
    """Results of several searches: each rate, their spread as a share of the median, and their
    common bounds. None without a rate."""
    results = [report.search for report in reports if report.search.rate_per_second is not None]
    if not results:
        return None
    rates = [result.rate_per_second or 0 for result in results]
    lows, highs = zip(*(result.interval_per_second for result in results), strict=True)
    return RepeatedSearch(
        rates_per_second=rates,
        median_per_second=median(rates),
        differ_by=(max(rates) - min(rates)) / median(rates),
        interval_per_second=[min(lows), None if None in highs else max(highs)],
        limited_by=[result.limited_by for result in results],
    )


def median_run(reports: list[Report]) -> Report:
    """The run nearest to the medians of all runs: with the least sum over all stages of the
    relative distance of its median latency; the earliest of equals."""
    medians = {
        cell: median_interval(_known(having, *cell, "p50")).value
        for cell, having in _cells(reports).items()
    }

    def distance(report: Report) -> float:
        return sum(
            abs(p50 - median) / max(1.0, abs(median))
            for cell, median in medians.items()
            if _has(report, *cell)
            for p50 in _known([report], *cell, "p50")
        )

    return min(reports, key=distance)


def _medians(reports: list[Report]) -> dict[str, RepeatedPipeline]:
    figures: defaultdict[str, dict[str, dict[str, dict[str, Median]]]] = defaultdict(dict)
    for (pipeline, stage, definition), having in _cells(reports).items():
        figures[pipeline].setdefault(stage, {})[definition] = {
            figure: _median(values)
            for figure in FIGURES
            if (values := _known(having, pipeline, stage, definition, figure))
        }
    pipelines = {}
    for pipeline, stages in figures.items():
        used = [report.pipelines.get(pipeline, PipelineReport()).resources for report in reports]
        pipelines[pipeline] = RepeatedPipeline(
            stages={
                stage: RepeatedStage(latency_ms=of_stage, **_recovery(reports, pipeline, stage))
                for stage, of_stage in stages.items()
            },
            resources={
                name: _median(known)
                for name in RESOURCES
                if (known := [v for run in used if (v := getattr(run, name)) is not None])
            },
        )
    return pipelines


def _recovery(
    reports: list[Report], pipeline: str, stage: str
) -> dict[str, list[RepeatedRecovery]]:
    """The field `recovery`, if all runs with this stage had the same events. A figure that one
    lacks, as of a kill from which it did not recover, has no median."""
    of_pipelines = [report.pipelines.get(pipeline, PipelineReport()) for report in reports]
    runs = [each.stages[stage].recovery for each in of_pipelines if stage in each.stages]
    events = [[each.event for each in run] for run in runs]
    if not events[0] or any(other != events[0] for other in events):
        return {}
    repeated = []
    for alike in zip(*runs, strict=True):
        values = {name: [getattr(each, name) for each in alike] for name in RECOVERY}
        known = {name: of for name, of in values.items() if None not in of}
        medians = {name: _median(of) for name, of in known.items()}
        repeated.append(RepeatedRecovery(event=alike[0].event, figures=medians))
    return {"recovery": repeated}


def _median(values: list[Number]) -> Median:
    interval = median_interval(values)
    return Median(
        median=interval.value,
        low=interval.low,
        high=interval.high,
        confidence=median_confidence(len(values)),
        values=values,
    )


def _cells(reports: list[Report]) -> dict[tuple[str, str, str], list[Report]]:
    """The runs with a latency, by pipeline, stage and definition."""
    having: dict[tuple[str, str, str], list[Report]] = {}
    for report in reports:
        for pipeline, of_pipeline in report.pipelines.items():
            for stage in of_pipeline.stages:
                for definition in DEFINITIONS:
                    if _has(report, pipeline, stage, definition):
                        having.setdefault((pipeline, stage, definition), []).append(report)
    return having


def _has(report: Report, pipeline: str, stage: str, definition: str) -> bool:
    stages = report.pipelines.get(pipeline, PipelineReport()).stages
    return stage in stages and definition in stages[stage].latency_ms


def _known(
    reports: list[Report], pipeline: str, stage: str, definition: str, figure: str
) -> list[Number]:
    """A figure of a latency in each report; empty if one of them, which an earlier version wrote,
    does not have it."""
    values = [
        report.pipelines[pipeline].stages[stage].latency_ms[definition].of(figure)
        for report in reports
    ]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []
