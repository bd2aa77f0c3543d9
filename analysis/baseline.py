"""Compares a report with a baseline, the report of an earlier run. Pure.

With five runs or more on each side (`--repeat 5`), a difference is judged by the variation between
runs (Welch 1947), jointly for all figures of the comparison (Bonferroni). With fewer runs that
variation is unknown: the 95 % intervals of both reports are compared, and the result applies to
these runs only. Of searches, only the rates found are compared: their latencies are those of the
load at these rates.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from analysis.comparability import apart, doubts_of
from analysis.comparison import CONFIDENCE, ENOUGH_RUNS
from analysis.costs import COST
from analysis.described import plain
from analysis.intervals import BETTER, SAME, UNKNOWN, WORSE, run_difference
from schemas.report import BaselineComparison, Compared, Interval, Latency, Median, Number, Report
from schemas.threshold import SUSTAINABLE_RATE

LATENCIES = ("p50", "p95", "p99")


@dataclass(frozen=True)
class MeasuredFigure:
    """A figure of a report: its value, its 95 % interval if known, and its value in each of several
    runs."""

    value: Number
    bounds: Interval | None
    runs: list[Number]


@dataclass(frozen=True)
class Cell:
    """A figure of both reports. pipeline: in the newer one. stage: empty for the cost and for the
    rate of a search."""

    pipeline: str
    stage: str
    figure: str
    before: MeasuredFigure
    now: MeasuredFigure

    @property
    def least_runs(self) -> int:
        """The number of runs on the side with fewer."""
        return min(len(self.before.runs), len(self.now.runs))


def compared(report: Report, baseline: Report, name: str) -> BaselineComparison:
    """The latencies (ms) and costs (core-seconds per million records) of both, of searches the rate
    (records/s). name: of the baseline."""
    left_out = _differs(report, baseline)
    doubts = [*_doubts(baseline), *_doubts(report)]
    cells = [] if left_out else list(_cells(report, baseline))
    by_runs = bool(cells) and min(cell.least_runs for cell in cells) >= ENOUGH_RUNS
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(cells))
    rows = [_row(cell, confidence if by_runs else None) for cell in cells]
    is_decided = by_runs and not doubts
    comparison = BaselineComparison(
        name=name,
        run_id=baseline.run_id,
        by="runs" if by_runs else "seconds",
        left_out=left_out,
        doubts=doubts,
        rows=rows,
        passed=not any(row.verdict == WORSE for row in rows) if is_decided else None,
        said="",
    )
    return comparison.model_copy(update={"said": _said(comparison)})


def _differs(report: Report, baseline: Report) -> list[str]:
    differs = apart(report.identity, baseline.identity)
    mine, theirs = report.pipelines, baseline.pipelines
    if len(mine) != len(theirs) or (len(mine) > 1 and set(mine) != set(theirs)):
        differs.append(f"pipelines {', '.join(sorted(mine))}, not {', '.join(sorted(theirs))}")
    stages, others = _stages(report), _stages(baseline)
    if stages != others:
        differs.append(f"stages {', '.join(stages)}, not {', '.join(others)}")
    return differs


def _stages(report: Report) -> list[str]:
    return sorted({stage for pipeline in report.pipelines.values() for stage in pipeline.stages})


def _doubts(report: Report) -> list[str]:
    """Doubts about a run, or about every valid one of several."""
    if report.repetition is None:
        return doubts_of(report)
    return [doubt for run in report.repetition.runs if run.valid for doubt in run.doubts]


def _cells(report: Report, baseline: Report) -> Iterator[Cell]:
    """The figures of both. The only pipeline of one is compared with the only one of the other."""
    mine, theirs = report.pipelines, baseline.pipelines
    pairs = [(name, name) for name in mine if name in theirs]
    if not pairs and len(mine) == len(theirs) == 1:
        pairs = [(min(mine), min(theirs))]
    for now, before in pairs:
        places = [(stage, figure) for stage in mine[now].stages for figure in LATENCIES]
        is_search = report.conclusion.search is not None
        for stage, figure in [("", SUSTAINABLE_RATE)] if is_search else [*places, ("", COST)]:
            old = _measured(baseline, before, stage, figure)
            new = _measured(report, now, stage, figure)
            if old is not None and new is not None:
                yield Cell(now, stage, figure, old, new)


def _measured(report: Report, pipeline: str, stage: str, figure: str) -> MeasuredFigure | None:
    if figure == SUSTAINABLE_RATE:
        return _rate_found(report)
    of_pipeline = report.pipelines[pipeline]
    repeated = report.repetition and report.repetition.pipelines.get(pipeline)
    over_runs: Median | None = None
    if stage:
        latest = of_pipeline.stages[stage].latest if stage in of_pipeline.stages else Latency()
        value, bounds = latest.of(figure), latest.interval(figure)
        if repeated and stage in repeated.stages:
            over_runs = repeated.stages[stage].latency_ms.get("latest", {}).get(figure)
    else:
        used = of_pipeline.resources
        value, bounds = used.core_seconds_per_million_records, used.core_seconds_interval
        over_runs = repeated.resources.get(figure) if repeated else None
    if value is None:
        return None
    runs = over_runs.values if over_runs else []
    return MeasuredFigure(median(runs) if runs else value, bounds, runs)


def _rate_found(report: Report) -> MeasuredFigure | None:
    """The rate that a search found, records per second, or those of several searches."""
    several = report.repetition and report.repetition.search
    bounds = (several or report.search).interval_per_second
    runs = several.rates_per_second if several else []
    value = median(runs) if runs else report.search.rate_per_second
    if value is None:
        return None
    known = [bound for bound in bounds if bound is not None]
    return MeasuredFigure(value, known if len(known) == len(bounds) else None, runs)


def _row(cell: Cell, confidence: float | None) -> Compared:
    """confidence: of the interval from the variation between runs; None compares intervals."""
    if confidence is None:
        moved = _moved(cell.before.bounds, cell.now.bounds)
    else:
        interval = run_difference(cell.before.runs, cell.now.runs, confidence)
        moved = interval.value if interval.excludes_zero else 0.0
    is_worse = moved is not None and (moved < 0 if cell.figure == SUSTAINABLE_RATE else moved > 0)
    verdict = UNKNOWN if moved is None else WORSE if is_worse else BETTER if moved else SAME
    return Compared(
        pipeline=cell.pipeline,
        stage=cell.stage,
        figure=cell.figure,
        before=cell.before.value,
        now=cell.now.value,
        verdict=verdict,
    )


def _moved(before: Interval | None, now: Interval | None) -> Number | None:
    """The distance between two intervals, 0 if they overlap; None if one is unknown."""
    if before is None or now is None:
        return None
    return max(0.0, now[0] - before[1]) or min(0.0, now[1] - before[0])


def _said(comparison: BaselineComparison) -> str:
    head = f"Compared with the baseline {comparison.name}"
    if comparison.left_out:
        return (
            f"Not compared with the baseline {comparison.name}: {'; '.join(comparison.left_out)}."
        )
    if not comparison.rows:
        return f"{head}: no figure in common."
    changes = [
        f"{word} in {', '.join(cells)}"
        for word, verdict in (("worse", WORSE), ("better", BETTER))
        if (cells := [_in_words(row) for row in comparison.rows if row.verdict == verdict])
    ]
    text = f"{head}: {' and '.join(changes) or 'no significant difference'}."
    if all(row.verdict == UNKNOWN for row in comparison.rows):
        text = f"{head}: too little data for intervals."
    if comparison.doubts:
        return f"{text} This is not conclusive: {'; '.join(comparison.doubts)}."
    if comparison.by == "seconds":
        return (
            f"{text} This applies to these runs and does not affect the exit code; --repeat "
            f"{ENOUGH_RUNS} on both sides decides."
        )
    return text


def _in_words(row: Compared) -> str:
    now, before = (plain(value, digits=4) for value in (row.now, row.before))
    if row.figure == SUSTAINABLE_RATE:
        return f"{row.pipeline} sustainable rate ({before} → {now} records/s)"
    if row.figure == COST:
        return f"{row.pipeline} cost ({before} → {now} core-seconds per million records)"
    return f"{row.pipeline} {row.stage} {row.figure} ({before} → {now} ms)"
