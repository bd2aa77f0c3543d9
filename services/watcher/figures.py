"""Figures of a run for the thresholds of its watch. Pure."""

from collections import Counter

from analysis.thresholds import judged
from schemas.percentiles import summary
from schemas.protocol import VERDICTS
from schemas.report import Figures, Input, Judged, Latency, PipelineReport, StageReport
from schemas.threshold import LATENCY_FIGURES, RATE
from schemas.watch import Watch
from services.watcher.counting import LATEST, RunTotals


def judged_run(watch: Watch, totals: RunTotals, watched_s: float) -> list[Judged]:
    """One row for each threshold. watched_s: the part of the run that was watched, seconds.

    Figures that cannot exist are left out: latency if no output was expected and none arrived, and
    rates of a run that was not watched. Latency that the timestamps do not measure is unknown.
    """
    absent: set[str] = set()
    if not any(totals.verdicts.values()):
        absent.update(LATENCY_FIGURES)
    if watched_s <= 0:
        absent.add(RATE)
    limits = (one for one in watch.limits if one.figure not in absent)
    rows = judged(limits, _figures(watch, totals, watched_s))
    if totals.unmeasured:
        why = {"reason": "has no latency: its timestamps cannot measure it"}
        return [row.model_copy(update=why) if row.value is None else row for row in rows]
    return rows


def _figures(watch: Watch, totals: RunTotals, watched_s: float) -> Figures:
    """The figures of a run."""
    verdicts = {verdict: totals.verdicts[verdict] for verdict in VERDICTS}
    counts = Counter[int]() if totals.unmeasured else totals.latencies.counts()
    stage = StageReport(
        verdicts=verdicts,
        outputs=sum(count for verdict, count in verdicts.items() if verdict != "missing"),
        records_per_second=_rate(totals.outputs, watched_s),
        latency_ms={LATEST: Latency.model_validate(summary(counts))} if counts else {},
    )
    source = Input(records=totals.inputs, records_per_second=_rate(totals.inputs, watched_s))
    pipelines = {watch.name: PipelineReport(stages={watch.stage: stage})}
    return Figures(input=source, pipelines=pipelines)


def _rate(records: int, watched_s: float) -> float | None:
    return records / watched_s if watched_s > 0 else None
