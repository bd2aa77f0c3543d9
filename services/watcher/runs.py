"""The runs of a watch: consecutive spans of time, by default hours. Each begins and concludes on
the bus like the run of a load, so that all other services handle them alike.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from analysis.thresholds import judged
from schemas.events import Concluded, LifecycleEvent, PhaseStarted, RunJudged, WatchBegun
from schemas.percentiles import summary
from schemas.protocol import FAILED_VERDICTS, VERDICTS
from schemas.report import Figures, Input, Latency, PipelineReport, StageReport, ThresholdResult
from schemas.threshold import GROUP, LATENCY_FIGURES, RATE, Threshold, parse_threshold
from schemas.watch import Watch, WatchedPipeline, WatchedWorkload, WatchRun
from services.watcher.clusters import Span, latency_error
from services.watcher.counting import LATEST, MEASURE, VISIBLE, Counting, RunTotals
from services.watcher.group_lag import MOST_UNKNOWN_MS, LagTotals
from services.watcher.records import NONE_MS

MOST_REASONS: Final = 20
CLUSTERS_APART: Final = "clusters_apart_ms"
NO_CLOCKS: Final[Mapping[str, Span | None]] = {}


def judged_run(
    watch: Watch,
    totals: RunTotals,
    watched_ms: tuple[int, int],
    hops: Sequence[RunTotals] = (),
    clocks: Mapping[str, Span | None] = NO_CLOCKS,
) -> list[ThresholdResult]:
    """One row for each threshold, of the lag of consumer groups for each group. watched_ms: begin
    and end of the part of the run that was watched. hops: totals of each. clocks: of
    `latency_error`, by stage, where it matters.

    Figures that cannot exist are left out: latency if no output was expected and none arrived, and
    rates of a run that was not watched. Latency that the timestamps do not measure is unknown, and
    so is a lag that was not observed all along.
    """
    watched_s = (watched_ms[1] - watched_ms[0]) / 1000
    absent: set[str] = set()
    if not any(count for each in (totals, *hops) for count in each.verdicts.values()):
        absent.update(LATENCY_FIGURES)
    if watched_s <= 0:
        absent.add(RATE)
    limits = [limit for limit in watch.limits if limit.figure not in absent]
    of_stages = [limit for limit in limits if not limit.is_of_groups]
    rows = judged(of_stages, figures_of(watch, totals, watched_s, hops))
    if totals.unmeasured:
        why = {"reason": "has no latency: its timestamps cannot measure it"}
        rows = [row.model_copy(update=why) if row.value is None else row for row in rows]
    rows = [_with_clocks(row, clocks[row.stage]) if row.stage in clocks else row for row in rows]
    of_groups = (limit for limit in limits if limit.is_of_groups)
    return rows + [
        row
        for limit in of_groups
        for group in watch.groups
        for row in _judged_lag(limit, group, totals.lags, watched_ms)
    ]


def _with_clocks(row: ThresholdResult, error_ms: Span | None) -> ThresholdResult:
    """The row of a stage between two clusters. A limit on latency that the difference of their
    clocks might decide is not decided, and fails."""
    limit = parse_threshold(row.threshold)
    if limit.figure not in LATENCY_FIGURES or row.value is None:
        return row
    if error_ms is None:
        reason = f"has {row.value:g} and is undecided: how the clusters' clocks differ is unknown"
    else:
        low, high = (row.value + each for each in error_ms)
        if limit.holds(low) == limit.holds(high) == row.passed:
            return row
        reason = (
            f"has {row.value:g} and is undecided: by the difference of the clusters' clocks it is "
            f"{low:g} to {high:g}"
        )
    return row.model_copy(update={"value": None, "passed": False, "reason": reason})


def _judged_lag(
    limit: Threshold, group: str, lags: LagTotals, watched_ms: tuple[int, int]
) -> list[ThresholdResult]:
    """The row of a threshold on the lag of a group. It fails without a value unless the lag was
    known at least every MOST_UNKNOWN_MS; a known lag above the limit is enough to fail."""
    mine = [each for each in lags.rows() if each.group == group]
    rows = judged([limit], Figures(groups=mine))
    unknown_ms = lags.unknown_ms(group, limit.figure, *watched_ms)
    is_known = bool(mine) and unknown_ms <= MOST_UNKNOWN_MS
    if is_known or any(row.value is not None and not row.passed for row in rows):
        return rows
    reason = f"was not known for {unknown_ms / 1000:.0f} s"
    return [
        row.model_copy(
            update={
                "stage": f"{GROUP} {group}",
                "value": None,
                "passed": False,
                "reason": reason,
            }
        )
        for row in rows
    ]


def figures_of(
    watch: Watch, totals: RunTotals, watched_s: float, hops: Sequence[RunTotals] = ()
) -> Figures:
    """The figures of a run."""
    source = Input(records=totals.inputs, records_per_second=_rate(totals.inputs, watched_s))
    stages = {
        name: _stage_report(each, watched_s, is_measured=not totals.unmeasured)
        for name, each in zip(watch.stages, (totals, *hops), strict=True)
    }
    return Figures(input=source, pipelines={watch.name: PipelineReport(stages=stages)})


def _stage_report(totals: RunTotals, watched_s: float, is_measured: bool) -> StageReport:
    """The figures of a stage. is_measured: whether the timestamps measure latency."""
    verdicts = {verdict: totals.verdicts[verdict] for verdict in VERDICTS}
    measured = {LATEST: totals.latencies.counts(), VISIBLE: totals.visible.counts()}
    return StageReport(
        verdicts=verdicts,
        outputs=sum(count for verdict, count in verdicts.items() if verdict != "missing"),
        records_per_second=_rate(totals.outputs, watched_s),
        latency_ms={
            definition: Latency.model_validate(_sizes(counts) | summary(counts))
            for definition, counts in measured.items()
            if counts and is_measured
        },
    )


def _sizes(counts: Counter[int]) -> dict[str, int]:
    negative = sum(count for latency_ms, count in counts.items() if latency_ms < 0)
    return {"count": counts.total(), "negative": negative}


def _rate(records: int, watched_s: float) -> float | None:
    return records / watched_s if watched_s > 0 else None


def run_id_of(watch: Watch, run: int, beginning: str = "") -> str:
    """Id of a run by its number. beginning: distinguishes runs of a watch that was started
    anew."""
    begin = datetime.fromtimestamp(run * watch.run_s, UTC)
    return f"watch-{watch.name}-{begin:%Y%m%d-%H%M%S}{beginning and '-'}{beginning}"


@dataclass
class WatchRuns:
    """Begun and concluded runs; reasons: why a run is invalid, by its number; beginning: see
    `run_id_of`."""

    watch: Watch
    environment: dict[str, Any]
    beginning: str = ""
    begun: set[int] = field(default_factory=set)
    concluded: set[int] = field(default_factory=set)
    reasons: dict[int, list[str]] = field(default_factory=dict)

    def id_of(self, run: int) -> str:
        """Id of a run by its number."""
        return run_id_of(self.watch, run, self.beginning)

    def number_of(self, run_id: str) -> int | None:
        """The number of a run by its id; None if it is no run of this watch."""
        date = run_id.removeprefix(f"watch-{self.watch.name}-")[: len("YYYYmmdd-HHMMSS")]
        try:
            begin = datetime.strptime(date, "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
        except ValueError:
            return None
        run = int(begin.timestamp()) // self.watch.run_s
        return run if self.id_of(run) == run_id else None

    def end_ms(self, run: int) -> int:
        """The end of a run, exclusive."""
        return 1000 * (run + 1) * self.watch.run_s

    def begin(self, run: int, from_ms: int = 0) -> Iterator[LifecycleEvent]:
        """The events that begin a run, unless it has begun. from_ms: nothing of it is earlier."""
        if run in self.begun:
            return
        self.begun.add(run)
        start_ms, end_ms = max(from_ms, self.end_ms(run - 1)), self.end_ms(run)
        relation = self.watch.relation
        run_id = self.id_of(run)
        begun = WatchRun(
            run_id=run_id,
            watch=self.watch.public(),
            start_ms=start_ms,
            end_ms=end_ms,
            workload=WatchedWorkload(
                name=self.watch.name,
                summary=self.watch.summary,
                judgement={
                    "deadline_ms": relation.deadline_ms,
                    "give_up_ms": relation.give_up_ms,
                },
            ),
            pipelines=(WatchedPipeline(name=self.watch.name, stages=self.watch.stages),),
            stages=self.watch.stages,
            environment=self.environment,
        )
        yield WatchBegun(run_id=run_id, run=begun)
        yield PhaseStarted(run_id=run_id, phase=MEASURE, start_ms=start_ms, end_ms=end_ms)

    def object(self, run: int, reason: str) -> None:
        """Add a reason why a run is invalid."""
        known = self.reasons.setdefault(run, [])
        if reason not in known and len(known) < MOST_REASONS:
            known.append(reason)

    def due(self, before_ms: int) -> list[int]:
        """Runs whose inputs all have a verdict once everything before a time has been judged."""
        wait_ms = self.watch.relation.give_up_ms
        return [
            run
            for run in sorted(self.begun - self.concluded)
            if self.end_ms(run) + wait_ms < before_ms
        ]

    def conclude(
        self,
        run: int,
        totals: RunTotals,
        watched_ms: tuple[int, int],
        details: dict[str, Any],
        ended: bool = False,
        *,
        hops: Sequence[RunTotals] = (),
    ) -> Iterator[RunJudged | Concluded]:
        """The events that end a run. watched_ms: begin and end of the time that the watch has
        judged; of it the whole seconds within the run count. details: further ones. ended: whether
        the watch ends. hops: totals of each."""
        self.concluded.add(run)
        from_ms = max(watched_ms[0] // 1000 * 1000, self.end_ms(run - 1))
        until_ms = min(-(-watched_ms[1] // 1000) * 1000, self.end_ms(run))
        verdicts = {
            stage: {each: of_stage.verdicts[each] for each in VERDICTS}
            for stage, of_stage in zip(self.watch.stages, (totals, *hops), strict=True)
        }
        refused = totals.refused
        clean = totals.verdicts["exact"] > 0 and not refused
        clean &= not any(of[each] for of in verdicts.values() for each in FAILED_VERDICTS)
        reasons = self.reasons.pop(run, [])
        watched: dict[str, Any] = {
            "inputs": totals.inputs,
            "outputs": totals.outputs,
            "refused": refused,
            "not_judged": totals.not_judged.rows(),
            "unmeasured": totals.unmeasured,
            "from_ms": from_ms,
            "until_ms": until_ms,
        }
        detail: dict[str, Any] = {
            "clean": clean,
            "verdicts": {self.watch.name: verdicts},
            "watch": watched | details,
        }
        if self.watch.thresholds:
            clocks = {}
            if CLUSTERS_APART in details:
                apart, stages = details[CLUSTERS_APART], enumerate(self.watch.stages)
                clocks = {name: latency_error(self.watch, n, apart) for n, name in stages}
            rows = judged_run(self.watch, totals, (from_ms, until_ms), hops, clocks)
            detail["thresholds"] = [row.as_json() for row in rows]
        run_id = self.id_of(run)
        yield RunJudged(run_id=run_id, invalid_reasons=tuple(reasons), **detail)
        yield Concluded(
            run_id=run_id,
            valid=not reasons,
            clean=clean,
            invalid_reasons=tuple(reasons),
            ended=ended,
        )

    def saved(self) -> dict[str, Any]:
        """As JSON types, for `restore`."""
        runs = {"begun": sorted(self.begun), "concluded": sorted(self.concluded)}
        reasons = {str(run): known for run, known in self.reasons.items()}
        return {"runs": runs, "reasons": reasons, "beginning": self.beginning}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore saved state."""
        self.begun, self.concluded = set(saved["runs"]["begun"]), set(saved["runs"]["concluded"])
        self.reasons = {int(run): known for run, known in saved["reasons"].items()}
        self.beginning = saved["beginning"]

    def forget(self, counting: Counting, before_ms: int, hops: Sequence[Counting] = ()) -> int:
        """Remove runs that were concluded long ago, also from the counts of hops. Returns the end
        of the newest of them, or NONE_MS."""
        closed_ms = NONE_MS
        wait_ms = 2 * self.watch.relation.remember_ms
        for run in sorted(self.concluded):
            if self.end_ms(run) + wait_ms < before_ms:
                closed_ms = self.end_ms(run)
                self.concluded.discard(run)
                self.begun.discard(run)
        for each in (counting, *hops):
            for run in [total for total in each.totals if self.end_ms(total) <= closed_ms]:
                del each.totals[run]  # also of verdicts after the conclusion
        for run in [reason for reason in self.reasons if self.end_ms(reason) <= closed_ms]:
            del self.reasons[run]
        return closed_ms
