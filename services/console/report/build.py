"""Builds the report of a run from the read model, so that anyone can run the same queries.

All figures are of the measure phase. Parts that need the counts per second are omitted if these
have expired.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from analysis.comparability import Request, domain_of, identity_of
from analysis.costs import (
    core_seconds_per_million_records,
    cores_by_process,
    cost_of_observing,
    rates_by_process,
    scaled_bounds,
)
from analysis.intervals import intervals
from analysis.recovery import CpuTime, Disturbance, planned, recovery
from schemas.protocol import DEFINITIONS, MACHINE, VERDICTS
from schemas.report import (
    ArrivedFrames,
    GroupLag,
    Heap,
    Input,
    Interval,
    Lag,
    Late,
    Latency,
    Loss,
    Number,
    PipelineReport,
    Report,
    Resources,
    Restart,
    Room,
    RunConclusion,
    SchedulerDelay,
    SendDelay,
    StageCost,
    StageReport,
    ThresholdResult,
    WarmUp,
)
from schemas.workload import Workload
from services.console.report.several import (
    scalability_of,
    with_conclusions,
    with_interleaved,
)
from services.readmodel import figures, runs, seconds
from services.readmodel.figures import Span
from services.runtime.clickhouse import QueryError

MOST_SPANS = 3_600  # for intervals; in longer runs, several seconds are combined
UNCONCLUDED = "The run is not concluded."
Stage = tuple[str, str]  # pipeline and stage
Row = TypeVar(
    "Row",
    figures.Verdicts,
    figures.LatencyRow,
    figures.StageCostRow,
    figures.OutputRow,
    figures.LossRow,
    figures.SocketRow,
)


def build_report(url: str, run_id: str) -> Report:
    """The report of a run. Raises QueryError, UnknownRunError."""
    request, concluded = runs.request_of(url, run_id), runs.conclusion_of(url, run_id)
    detail = concluded.detail if concluded else {}
    above = {name: detail.pop(name, {}) for name in ("late", "room", "heap")}
    disturbed, thresholds = detail.pop("disturbed", None), detail.pop("thresholds", [])
    conclusion = RunConclusion.model_validate({"clean": bool(detail.pop("clean", False))} | detail)
    is_watch = "watch" in request
    span = _watched(conclusion) or _measured(url, run_id, is_watch)
    plan = ReportPlan.of(request)
    expired = seconds.expired(url, run_id)
    facts = read_facts(url, run_id, plan, span, expired=expired)
    source = _watched_input(url, run_id, span) if is_watch else _sent_input(url, run_id, span)
    pipelines = facts.pipelines(source.records or 0)
    if not expired and not is_watch:
        pipelines = _with_recoveries(url, run_id, request, pipelines)
    if conclusion.watch is not None and conclusion.watch.unmeasured:
        pipelines = _without_latencies(pipelines)
    report = Report(
        run_id=run_id,
        workload=request["workload"]["name"],
        domain=domain_of(request),
        valid=concluded.valid if concluded else False,
        steady=conclusion.warm_up.get("steady"),
        warm_up=_warm_up(conclusion),
        invalid_reasons=concluded.invalid_reasons if concluded else [UNCONCLUDED],
        disturbed=disturbed,
        late=Late.model_validate(above["late"]),
        room={name: Room.model_validate(part) for name, part in above["room"].items()},
        heap={name: Heap.model_validate(part) for name, part in above["heap"].items()},
        mean_bytes=_mean_bytes(url, run_id, is_watch=is_watch),
        floor=_floor(url, run_id),
        floor_s=request["workload"].get("floor_s", 0),
        environment=request["environment"],
        input=source,
        way_in=_way_in(url, run_id),
        pipelines=pipelines,
        services=facts.services,
        observing=cost_of_observing(facts.services),
        seconds_expired=expired,
        left_out=sorted(plan.strangers),
        thresholds=[ThresholdResult.model_validate(row) for row in thresholds],
        conclusion=conclusion,
        identity=identity_of(request),
    )
    if is_watch:
        report = _with_groups(url, report)
    return with_interleaved(url, request, report)


def build_whole_report(url: str, run_id: str) -> Report:
    """The same with the results of commands about several runs: `scalability`, None for a run
    outside a series, and what was published about it. Raises QueryError."""
    report = build_report(url, run_id)
    scalability = scalability_of(url, runs.request_of(url, run_id), build_report)
    return with_conclusions(url, report.model_copy(update={"scalability": scalability}))


@dataclass(frozen=True)
class ReportPlan:
    """What a run was to measure: the stages of each pipeline in order, and its topology. strangers:
    what rows name that is not in the plan; its figures are left out."""

    stages: Mapping[str, list[str]]
    topologies: Mapping[str, str]
    strangers: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, request: Request) -> "ReportPlan":
        """The plan of a request."""
        stages = {each["name"]: stages_of(request, each) for each in request["pipelines"]}
        return cls(stages, request.get("topologies", {}))

    def by_stage(self, rows: Iterable[Row]) -> dict[Stage, list[Row]]:
        """The rows of planned stages."""
        planned_rows: defaultdict[Stage, list[Row]] = defaultdict(list)
        for row in rows:
            if row.stage in self.stages.get(row.pipeline, ()):
                planned_rows[row.pipeline, row.stage].append(row)
            else:
                self.strangers.add(f"{row.pipeline} {row.stage}")
        return planned_rows

    def has(self, pipeline: str) -> bool:
        """Whether a pipeline is in the plan."""
        if pipeline not in self.stages:
            self.strangers.add(pipeline)
            return False
        return True


def stages_of(request: Request, pipeline: Request) -> list[str]:
    """The stages that a pipeline publishes in a run, in order."""
    asked = [stage for stage in request["stages"] if stage in pipeline["stages"]]
    return list(request.get("published", {}).get(pipeline["name"], asked))


@dataclass(frozen=True)
class RunFigures:
    """The figures of a run as read. measured_s: length of its measured time. machine_s: of that,
    the time with samples of the machine. usage: of pipelines; services: of all else."""

    plan: ReportPlan
    measured_s: float
    verdicts: Mapping[Stage, list[figures.Verdicts]]
    latencies: Mapping[Stage, list[figures.LatencyRow]]
    intervals: Mapping[seconds.Cell, dict[str, Interval | None] | None]
    costs: Mapping[Stage, list[figures.StageCostRow]]
    losses: Mapping[Stage, list[figures.LossRow]]
    sockets: Mapping[Stage, list[figures.SocketRow]]
    restarts: Mapping[str, list[Restart]]
    outputs: Mapping[Stage, list[figures.OutputRow]]
    lags: Mapping[str, figures.LagRow]
    delays: Mapping[str, SchedulerDelay]
    usage: Mapping[str, figures.UsageRow]
    services: dict[str, Resources]
    machine_s: float

    def pipelines(self, records: Number) -> dict[str, PipelineReport]:
        """All planned pipelines, given the number of input records."""
        return {
            name: PipelineReport(
                stages={stage: self._stage((name, stage)) for stage in stages},
                topology=self.plan.topologies.get(name),
                lag_records=Lag(max=lag.max, end=lag.end) if (lag := self.lags.get(name)) else None,
                scheduler_delay_ms=self.delays.get(name),
                resources=self._resources(name, records),
                restarts=self.restarts.get(name, []),
            )
            for name, stages in self.plan.stages.items()
        }

    def _stage(self, stage: Stage) -> StageReport:
        verdicts = dict.fromkeys(VERDICTS, 0)
        for row in self.verdicts.get(stage, ()):
            verdicts = row.verdicts
        rate, aborted = 0.0, 0
        for outputs in self.outputs.get(stage, ()):
            rate, aborted = outputs.records / self.measured_s, outputs.aborted
        costs = [
            StageCost(stage_before=cost.stage_before, p50=cost.p50, p99=cost.p99)
            for cost in self.costs.get(stage, ())
        ]
        loss = next(iter(self.losses.get(stage, ())), None)
        behind = next(iter(self.sockets.get(stage, ())), None)
        return StageReport(
            outputs=sum(count for verdict, count in verdicts.items() if verdict != "missing"),
            records_per_second=rate,
            verdicts=dict(verdicts),
            latency_ms={
                row.definition: self._latency(row) for row in self.latencies.get(stage, ())
            },
            aborted=aborted,
            cost_ms=costs[-1] if costs else None,
            lost=loss.lost if loss else None,
            loss=Loss.model_validate(loss, from_attributes=True) if loss else None,
            socket_ns=Latency.model_validate({"count": behind.count} | behind.figures)
            if behind
            else None,
        )

    def _latency(self, row: figures.LatencyRow) -> Latency:
        place = (row.pipeline, row.stage, row.definition)
        return Latency(
            count=row.count,
            negative=row.negative,
            **row.latencies,
            intervals=self.intervals.get(place),
        )

    def _resources(self, pipeline: str, records: Number) -> Resources:
        used = self.usage.get(pipeline)
        if used is None:
            return Resources()
        cost = core_seconds_per_million_records(
            used.cpu_seconds, int(records), machine_s=self.machine_s, measured_s=self.measured_s
        )
        by_sample = [cpu_s / (of_s or 1) for _at, cpu_s, of_s in sorted(used.samples)]
        return _used(used).model_copy(
            update={
                "core_seconds_per_million_records": cost,
                "core_seconds_interval": scaled_bounds(cost, used.cpu_cores, by_sample),
                "cpu_cores_by_process": cores_by_process(
                    used.cpu_seconds_by_process, used.sampled_s
                ),
                "received_bytes_by_process": rates_by_process(
                    used.received_bytes_by_process, used.sampled_s
                ),
                "sent_bytes_by_process": rates_by_process(
                    used.sent_bytes_by_process, used.sampled_s
                ),
            }
        )


def read_facts(
    url: str, run_id: str, plan: ReportPlan, span: Span | None, *, expired: bool
) -> RunFigures:
    """The figures of a run. span: its measured time, None if it did not measure. expired: whether
    its counts per second were deleted. Raises QueryError."""
    length_s = _seconds(span)
    restarts = {name: of for name, of in _restarts(url, run_id).items() if plan.has(name)}
    verdicts = plan.by_stage(figures.verdicts(url, run_id))
    spans = _intervals(url, run_id, length_s) if span and not expired else {}
    known = [row for row in figures.latencies(url, run_id) if _is_known(row, plan)]
    known.sort(key=lambda row: DEFINITIONS.index(row.definition))
    usage = figures.usage(url, run_id, span) if span else []
    return RunFigures(
        plan,
        length_s,
        verdicts,
        plan.by_stage(known),
        spans,
        plan.by_stage(figures.stage_costs(url, run_id)),
        plan.by_stage(figures.losses(url, run_id)),
        plan.by_stage(figures.socket_latencies(url, run_id)),
        restarts,
        plan.by_stage(figures.outputs(url, run_id, span) if span else []),
        {
            row.pipeline: row
            for row in (figures.lags(url, run_id, span) if span else ())
            if plan.has(row.pipeline)
        },
        figures.scheduler_delays(url, run_id) if span else {},
        {row.pipeline: row for row in usage if row.pipeline and plan.has(row.pipeline)},
        {row.service: _used(row) for row in usage if not row.pipeline},
        sum(row.sampled_s for row in usage if row.service == MACHINE),
    )


def _is_known(row: figures.LatencyRow, plan: ReportPlan) -> bool:
    if row.definition not in DEFINITIONS:
        plan.strangers.add(f"definition {row.definition}")
        return False
    return True


def _used(row: figures.UsageRow) -> Resources:
    return Resources(
        cpu_cores=row.cpu_cores,
        cpu_seconds=row.cpu_seconds,
        memory_bytes_max=row.memory_bytes_max,
        heap_used_bytes_min=row.heap_used_bytes_min,
        heap_used_bytes_mean=row.heap_used_bytes_mean,
        heap_used_bytes_max=row.heap_used_bytes_max,
    )


def _seconds(span: Span | None) -> float:
    return (span[1] - span[0]) / 1000 if span else 0.0


def _measured(url: str, run_id: str, is_watch: bool) -> Span | None:
    """The measured time; None without one. If the run ended early, the end is that of the last
    second in which records were sent, or read by a watch."""
    phases = runs.phases_of(url, run_id)
    if "measure" not in phases:
        return None
    start_ms, end_ms = phases["measure"].start_ms, phases["measure"].end_ms
    if start_ms is None or end_ms is None:
        raise QueryError(f"The event phase_started of run {run_id!r} has no measured interval.")
    if "cool_down" not in phases:
        until_ms = figures.read_until_ms if is_watch else figures.sent_until_ms
        end_ms = min(end_ms, until_ms(url, run_id))
    return (start_ms, end_ms) if start_ms < end_ms else None


def _watched(conclusion: RunConclusion) -> Span | None:
    """The part of a watch's run that was watched; None if unknown or empty."""
    watch = conclusion.watch
    if watch is None or watch.from_ms >= watch.until_ms:
        return None
    return (watch.from_ms, watch.until_ms)


def _sent_input(url: str, run_id: str, span: Span | None) -> Input:
    sent = figures.sent(url, run_id)
    return Input(
        records=sent.records,
        records_per_second=sent.records / _seconds(span) if span else 0.0,
        send_delay_ms=SendDelay(p50=sent.p50, p99=sent.p99, max=sent.max),
    )


def _watched_input(url: str, run_id: str, span: Span | None) -> Input:
    records = figures.input_records(url, run_id)
    return Input(
        records=records,
        records_per_second=records / _seconds(span) if span else 0.0,
        send_delay_ms=SendDelay(p50=None, p99=None, max=None),
    )


def _mean_bytes(url: str, run_id: str, *, is_watch: bool) -> dict[str, Number | None]:
    """Of a load only of its input: the outputs of different pipelines and stages have no mean."""
    sizes = figures.mean_bytes(url, run_id)
    return sizes if is_watch else {"input": sizes["input"]}


def _with_groups(url: str, report: Report) -> Report:
    """The report of a watch with the consumer groups that it observed."""
    groups = [
        GroupLag(**{name: value for name, value in asdict(row).items() if value is not None})
        for row in figures.group_lags(url, report.run_id)
    ]
    return report.model_copy(update={"groups": groups})


def _floor(url: str, run_id: str) -> Latency | None:
    row = figures.floor(url, run_id)
    if row is None:
        return None
    known = {name: value for name, value in row.latencies.items() if name != "middle"}
    return Latency.model_validate({"count": row.count} | known)


def _way_in(url: str, run_id: str) -> ArrivedFrames | None:
    detail = runs.way_in(url, run_id)
    return None if detail is None else ArrivedFrames.model_validate(detail)


def _warm_up(conclusion: RunConclusion) -> WarmUp | None:
    detail = conclusion.warm_up
    if not detail:
        return None
    return WarmUp(
        seconds=detail.get("seconds"),
        until_steady=detail.get("until_steady", False),
        moving=detail.get("moving", []),
        unknown=detail.get("unknown", ""),
        of_machine=detail.get("of_machine", []),
    )


def _without_latencies(pipelines: Mapping[str, PipelineReport]) -> dict[str, PipelineReport]:
    """The pipelines of a watch whose timestamps measure no latency."""
    return _with_stages(pipelines, lambda _place, _cell: {"latency_ms": {}})


def _with_stages(
    pipelines: Mapping[str, PipelineReport],
    changes: Callable[[Stage, StageReport], dict[str, object]],
) -> dict[str, PipelineReport]:
    """The pipelines with changes to every stage."""
    return {
        name: pipeline.model_copy(
            update={
                "stages": {
                    stage: cell.model_copy(update=changes((name, stage), cell))
                    for stage, cell in pipeline.stages.items()
                }
            }
        )
        for name, pipeline in pipelines.items()
    }


def _intervals(
    url: str, run_id: str, measured_s: float
) -> dict[seconds.Cell, dict[str, Interval | None] | None]:
    """Intervals of each latency by figure; None if there is too little data."""
    span_s = max(1, -(-int(measured_s) // MOST_SPANS))
    by_cell: dict[seconds.Cell, dict[str, Interval | None] | None] = {}
    for cell, (counts, outputs) in seconds.spans(url, run_id, span_s).items():
        bounds = intervals(counts, outputs)
        by_cell[cell] = (
            None
            if bounds is None
            else {figure: None if pair is None else list(pair) for figure, pair in bounds.items()}
        )
    return by_cell


def _restarts(url: str, run_id: str) -> dict[str, list[Restart]]:
    """The restarts of each pipeline that had any, in order.

    An output of the measure phase that is repeated after the pipeline was found dead is a duplicate
    caused by the restart. A late output is attributed to the restart until its stage has caught up.
    Later ones have other causes.
    """
    downs: defaultdict[str, list[tuple[int, int | None]]] = defaultdict(list)
    for event in runs.outages(url, run_id):
        of_pipeline = downs[event.pipeline]
        if event.event == "pipeline_down":
            of_pipeline.append((event.time_ms, None))
        elif of_pipeline:
            of_pipeline[-1] = (of_pipeline[-1][0], event.time_ms)
    restarts = {}
    for pipeline, of_pipeline in downs.items():
        ends_ms = [*(down_ms for down_ms, _up in of_pipeline[1:]), seconds.FOR_EVER_MS]
        restarts[pipeline] = [
            _restart(url, run_id, pipeline, (down_ms, end_ms), up_ms)
            for (down_ms, up_ms), end_ms in zip(of_pipeline, ends_ms, strict=True)
        ]
    return restarts


def _restart(url: str, run_id: str, pipeline: str, span: Span, up_ms: int | None) -> Restart:
    """The restart after which the pipeline ran until the end of the span."""
    late = seconds.late_after(url, run_id, pipeline, span)
    return Restart(
        down_ms=span[0],
        outage_s=None if up_ms is None else (up_ms - span[0]) / 1000,
        late=late_until_caught_up(late, seconds.FOR_EVER_MS if up_ms is None else up_ms),
        duplicate=seconds.duplicates_after(url, run_id, pipeline, span),
    )


def late_until_caught_up(rows: Iterable[seconds.LateSecond], up_ms: int) -> int:
    """Late outputs of each stage until it has caught up: until its first second from `up_ms` on
    without any. rows: by stage and time, of seconds with outputs."""
    total, caught_up = 0, set()
    for row in rows:
        if not row.late and row.second_ms >= up_ms:
            caught_up.add(row.stage)
        if row.stage not in caught_up:
            total += row.late
    return total


def _with_recoveries(
    url: str, run_id: str, request: Request, pipelines: dict[str, PipelineReport]
) -> dict[str, PipelineReport]:
    """The pipelines with `recovery` of every stage if something disturbed the run."""
    disturbances = _disturbances(url, run_id, Workload.model_validate(request["workload"]))
    if not disturbances:
        return pipelines
    gaps_ms = _gaps_ms(url, run_id)
    cpu = _cpu_times(url, run_id, pipelines)
    medians: defaultdict[Stage, dict[int, float]] = defaultdict(dict)
    outputs: defaultdict[Stage, dict[int, int]] = defaultdict(dict)
    latencies: defaultdict[Stage, dict[int, dict[int, int]]] = defaultdict(dict)
    for row in seconds.medians(url, run_id):
        medians[row.pipeline, row.stage][row.at_s] = float(row.median_ms)
        outputs[row.pipeline, row.stage][row.at_s] = row.outputs
        latencies[row.pipeline, row.stage][row.at_s] = row.latencies
    return _with_stages(
        pipelines,
        lambda place, _cell: {
            "recovery": recovery(
                disturbances,
                medians[place],
                outputs[place],
                latencies[place],
                cpu=cpu[place[0]],
                gaps_ms=gaps_ms.get(place),
            )
        },
    )


def _gaps_ms(url: str, run_id: str) -> dict[Stage, list[int]]:
    """The longest gap after each kill, of each stage whose single outputs are known."""
    times_ms = [kill.time_ms for kill in runs.kills(url, run_id)]
    gaps: dict[Stage, list[int]] = {}
    for row in seconds.longest_gaps(url, run_id, times_ms) if times_ms else ():
        own = gaps.setdefault((row.pipeline, row.stage), [0] * len(times_ms))
        if row.number:
            own[row.number - 1] = row.gap_ms
    return gaps


def _cpu_times(url: str, run_id: str, pipelines: Iterable[str]) -> dict[str, CpuTime]:
    samples = seconds.samples(url, run_id)
    of_machine = [(each.at_s, each.interval_s) for each in samples if not each.pipeline]
    return {
        name: CpuTime(
            [
                (each.at_s, each.interval_s, each.cpu_seconds)
                for each in samples
                if each.pipeline == name
            ],
            of_machine,
        )
        for name in pipelines
    }


def _disturbances(url: str, run_id: str, workload: Workload) -> list[Disturbance]:
    load = workload.load
    if not (workload.kills or workload.pipelines_start_s or load.recurring):
        return []
    phases = runs.phases_of(url, run_id)
    if "warm_up" not in phases or "cool_down" not in phases:
        return []
    start_s = (phases["warm_up"].start_ms or 0) // 1000
    end_s = (phases["cool_down"].end_ms or 0) // 1000
    disturbances = planned(load, start_s, end_s)
    if workload.pipelines_start_s:
        begun_s = start_s + workload.pipelines_start_s
        disturbances.append(Disturbance("start", "start of the pipelines", begun_s, end_s))
    kills = runs.kills(url, run_id)
    # Missed outputs may arrive as late as the judgement allows.
    last_s = end_s + workload.judgement.give_up_ms // 1000
    times_s = [*(kill.time_ms // 1000 for kill in kills), last_s]
    since_s = (phases["measure"].start_ms or 0) // 1000 if "measure" in phases else start_s
    for kill, at_s, until_s in zip(kills, times_s, times_s[1:], strict=False):
        disturbances.append(Disturbance("kill", kill.said, at_s, until_s, since_s))
    return disturbances
