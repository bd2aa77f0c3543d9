"""The timelines of one run: the curves of its page.

A long run is summarised over at most MOST_SPANS equal spans; percentiles of a span are exact, from
raw counts. If raw rows have expired, the sums per minute are used, and a span of latencies is one
or more whole minutes.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from schemas.study import (
    BY_RATE,
    CPU_BY_RATE,
    CPU_CORES,
    HEAP,
    HEAP_BY_RATE,
    LATENCY_BY_RATE,
    OUTPUT_RATE,
    PREFIXES,
    PULL_RATE,
    SCHEDULER_DELAY,
    CurveName,
)
from services.readmodel.runs import phases_of
from services.runtime.clickhouse import query, query_as

MOST_SPANS = 240
MINUTE_S = 60
DIGITS = 2  # of the values of a study's curves
LATEST = "latest"
SPANS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14_400, 43_200, 86_400)
LEVELS = (0.001, 0.01, *(number / 50 for number in range(1, 50)), 0.99, 0.995, 0.999, 1.0)
Curve = tuple[tuple[float, float], ...]
ByStage = dict[str, dict[str, Curve]]


@dataclass(frozen=True)
class Timelines:
    """Curves by pipeline and stage. Times are seconds since the first record was due.

    end_s: time of the last value. latency_span_s: length of a point of median_ms and p99_ms.
    measure: begin and end of the phase. median_ms, p99_ms: of `latest`, by output time. shares:
    latency in ms, and the percentage of the measured outputs at or below it. records: per second,
    by pipeline and stage. input_records: per second. cpu_cores, memory_mb: by service; a pipeline
    is a service.
    """

    end_s: float
    latency_span_s: float
    measure: tuple[float, float] | None
    median_ms: ByStage
    p99_ms: ByStage
    shares: ByStage
    records: ByStage
    input_records: Curve
    cpu_cores: dict[str, Curve]
    memory_mb: dict[str, Curve]


@dataclass(frozen=True, kw_only=True)
class _Point:
    """Base of rows by span. at_s: begin of the span, seconds since the start."""

    pipeline: str
    span: int
    at_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Latency(_Point):
    """The median and the 99th percentile of a stage."""

    stage: str
    percentiles_ms: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class _Records(_Point):
    """Records of a stage, or of the input (no pipeline)."""

    stage: str
    records: int


@dataclass(frozen=True, kw_only=True)
class _Delay(_Point):
    """The median delay of tasks by the scheduler of the pipeline's engine."""

    median_ms: float


@dataclass(frozen=True, kw_only=True)
class _Usage(_Point):
    """Resources of a service. heap_mb: None without a JVM."""

    service: str
    cpu_cores: float
    memory_mb: float
    heap_mb: float | None


@dataclass(frozen=True, kw_only=True)
class _Step:
    """A stage in a step of a search. cpu_cores, heap_mb: of its pipeline, None if unknown."""

    stage: str
    rate_per_second: float
    median_ms: float
    cpu_cores: float | None
    heap_mb: float | None


_P = TypeVar("_P", bound=_Point)
_S = TypeVar("_S", _Latency, _Records)


def read_timelines(url: str, run_id: str, *, expired: bool) -> Timelines | None:
    """The curves of a run; None if it ended before its load began. expired: whether its counts per
    second have been deleted. Raises QueryError."""
    phases = _phases(url, run_id)
    if not phases:
        return None
    start_ms, most_s = _extent(phases)
    span_s = span_of(most_s)
    latency_span_s = max(span_s, MINUTE_S) if expired else span_s
    latency = _latency(url, run_id, start_ms, latency_span_s, expired=expired)
    throughput = _spans(_Records, THROUGHPUT, (url, run_id), start_ms=start_ms, span_s=span_s)
    usage = _spans(_Usage, RESOURCES, (url, run_id), start_ms=start_ms, span_s=span_s)
    # A whole minute may end long after the run.
    ends_s = [row.at_s + (0 if expired else latency_span_s) for row in latency]
    ends_s += [row.at_s + span_s for row in (*throughput, *usage)]
    measure = phases.get("measure")
    return Timelines(
        end_s=max([most_s, *ends_s]),
        latency_span_s=latency_span_s,
        measure=measure and ((measure[0] - start_ms) / 1000, (measure[1] - start_ms) / 1000),
        median_ms=_by_stage(latency, lambda row: row.percentiles_ms[0]),
        p99_ms=_by_stage(latency, lambda row: row.percentiles_ms[1]),
        shares=_shares(url, run_id),
        records=_rates([row for row in throughput if row.pipeline], span_s),
        input_records=_rates([row for row in throughput if not row.pipeline], span_s)
        .get("", {})
        .get("", ()),
        cpu_cores=_by_service(usage, lambda row: row.cpu_cores),
        memory_mb=_by_service(usage, lambda row: row.memory_mb),
    )


def read_curves(
    url: str, run_id: str, pipeline: str, names: Collection[CurveName]
) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Curves of a pipeline in a run, by stage and name; those of the whole pipeline are below the
    stage "". Times are seconds since the first record was due; those by rate have a point per step
    of the run's search, at its records per second. Raises QueryError."""
    curves: defaultdict[str, dict[str, Curve]] = defaultdict(dict)
    if {*BY_RATE} & {*names}:
        for stage, named in _by_rate(url, run_id, pipeline).items():
            curves[stage] |= {name: named[name] for name in named if name in names}
    if phases := _phases(url, run_id):
        start_ms, length_s = _extent(phases)
        spans = (url, run_id), start_ms, span_of(length_s)
        for stage, named in _over_time(spans, pipeline, names).items():
            curves[stage] |= named
    known = {
        stage: {
            name: [(at, round(value, DIGITS)) for at, value in curve]
            for name, curve in own.items()
            if curve
        }
        for stage, own in curves.items()
    }
    return {stage: own for stage, own in known.items() if own}


def _over_time(
    spans: tuple[tuple[str, str], int, int], pipeline: str, names: Collection[CurveName]
) -> ByStage:
    """The curves over time. spans: the store and the run, when its load began, seconds of a
    span."""
    at, start_ms, span_s = spans
    curves: defaultdict[str, dict[str, Curve]] = defaultdict(dict)
    for name in (name for name in names if name in PREFIXES.values()):
        latency = _spans(_Latency, LATENCY, at, start_ms=start_ms, span_s=span_s, definition=name)
        medians = _by_stage(latency, lambda row: row.percentiles_ms[0])
        for stage, curve in medians.get(pipeline, {}).items():
            curves[stage][name] = curve
    if OUTPUT_RATE in names:
        records = _spans(_Records, THROUGHPUT, at, start_ms=start_ms, span_s=span_s)
        for stage, curve in _rates(records, span_s).get(pipeline, {}).items():
            curves[stage][OUTPUT_RATE] = curve
    if PULL_RATE in names:
        handed = _spans(_Records, PULLS, at, start_ms=start_ms, span_s=span_s)
        curves[""][PULL_RATE] = _rates(handed, span_s).get(pipeline, {}).get("", ())
    if {CPU_CORES, HEAP} & {*names}:
        usage = _spans(_Usage, RESOURCES, at, start_ms=start_ms, span_s=span_s)
        rows = [row for row in usage if row.pipeline == pipeline]
        heaps = [row for row in rows if row.heap_mb is not None]
        used = {
            CPU_CORES: _curve(rows, lambda row: row.cpu_cores),
            HEAP: _curve(heaps, lambda row: row.heap_mb or 0.0),
        }
        curves[""] |= {name: used[name] for name in used if name in names}
    if SCHEDULER_DELAY in names:
        delays = _spans(_Delay, SCHEDULER_DELAYS, at, start_ms=start_ms, span_s=span_s)
        own = [row for row in delays if row.pipeline == pipeline]
        curves[""][SCHEDULER_DELAY] = _curve(own, lambda row: row.median_ms)
    return dict(curves)


def _by_rate(url: str, run_id: str, pipeline: str) -> dict[str, dict[str, Curve]]:
    """The curves by rate of a search, by stage; of steps at the same rate the last."""
    points: defaultdict[str, defaultdict[str, dict[float, float]]]
    points = defaultdict(lambda: defaultdict(dict))
    for step in query_as(_Step, url, STEPS, run_id=run_id, pipeline=pipeline):
        rate = float(step.rate_per_second)
        points[step.stage][LATENCY_BY_RATE][rate] = float(step.median_ms)
        if step.cpu_cores is not None:
            points[""][CPU_BY_RATE][rate] = float(step.cpu_cores)
        if step.heap_mb is not None:
            points[""][HEAP_BY_RATE][rate] = float(step.heap_mb)
    return {
        stage: {name: tuple(sorted(own.items())) for name, own in named.items()}
        for stage, named in points.items()
    }


def _phases(url: str, run_id: str) -> dict[str, tuple[int, int]]:
    """Begin and end of the phases of a load that began."""
    return {
        name: (phase.start_ms, phase.end_ms or 0)
        for name, phase in phases_of(url, run_id).items()
        if phase.start_ms
    }


def _extent(phases: Mapping[str, tuple[int, int]]) -> tuple[int, float]:
    """When a load began, and its duration in seconds."""
    start_ms = min(start for start, _end in phases.values())
    return start_ms, max(end for _start, end in phases.values()) / 1000 - start_ms / 1000


def span_of(length_s: float) -> int:
    """The shortest round span, in seconds, of which MOST_SPANS cover a length."""
    return next((span for span in SPANS_S if length_s / span <= MOST_SPANS), SPANS_S[-1])


_SPAN = "intDiv(toUnixTimestamp64Milli({time}) - {{start:Int64}}, {{span:Int64}}) AS span"
_LATENCY = (
    "SELECT pipeline, stage, {span}"
    ", quantilesExactWeighted(0.5, 0.99)(latency_ms, r.count) AS percentiles_ms"
    " FROM tidegauge.{table} AS r"
    " WHERE run_id = {{run_id:String}} AND definition = {{definition:String}}"
    " GROUP BY pipeline, stage, span ORDER BY pipeline, stage, span"
)
LATENCY = _LATENCY.format(span=_SPAN.format(time="second"), table="results_latency")
LATENCY_OF_MINUTES = _LATENCY.format(
    span=_SPAN.format(time="toDateTime64(minute, 3)"), table="latency_minutes"
)
THROUGHPUT = (
    "SELECT pipeline, stage, "
    + _SPAN.format(time="second")
    + ", sum(r.records) AS records FROM tidegauge.results_throughput AS r"
    " WHERE run_id = {run_id:String} AND second >= fromUnixTimestamp64Milli({start:Int64})"
    " GROUP BY pipeline, stage, span ORDER BY pipeline, stage, span"
)
RESOURCES = (
    "SELECT service, pipeline, "
    + _SPAN.format(time="time")
    + ", sum(r.cpu_seconds) / sum(interval_s) AS cpu_cores,"
    " max(memory_bytes) / 1e6 AS memory_mb, max(heap_used_bytes) / 1e6 AS heap_mb"
    " FROM tidegauge.results_resources AS r"
    " WHERE run_id = {run_id:String} AND time >= fromUnixTimestamp64Milli({start:Int64})"
    " GROUP BY service, pipeline, span ORDER BY service, pipeline, span"
)
STEPS = (
    "SELECT stage, f.rate_per_second AS rate_per_second, toFloat64(p50_ms) AS median_ms,"
    " f.cpu_cores AS cpu_cores, heap_mean_bytes / 1e6 AS heap_mb FROM tidegauge.figures AS f"
    " WHERE step_of = {run_id:String} AND pipeline = {pipeline:String} AND p50_ms IS NOT NULL"
    " ORDER BY f.rate_per_second, requested_at"
)
PULLS = (
    "SELECT pipeline, '' AS stage, "
    + _SPAN.format(time="second")
    + ", sum(p.records) AS records FROM tidegauge.pull_rates AS p"
    " WHERE run_id = {run_id:String} AND second >= fromUnixTimestamp64Milli({start:Int64})"
    " GROUP BY pipeline, span ORDER BY pipeline, span"
)
SCHEDULER_DELAYS = (
    "SELECT pipeline, "
    + _SPAN.format(time="time")
    + ", quantileExactWeighted(0.5)(task.1, toUInt64(task.2)) AS median_ms"
    " FROM tidegauge.results_pipeline AS r"
    " ARRAY JOIN arrayZip(scheduler_delays_ms, scheduler_delay_tasks) AS task"
    " WHERE run_id = {run_id:String} AND time >= fromUnixTimestamp64Milli({start:Int64})"
    " GROUP BY pipeline, span ORDER BY pipeline, span"
)
SHARES = (
    f"SELECT pipeline, stage, quantilesExactWeighted({', '.join(str(x) for x in LEVELS)})"
    "(latency_ms, r.count) AS percentiles_ms FROM tidegauge.latency_minutes AS r"
    " WHERE run_id = {run_id:String} AND definition = 'latest' AND phase = 'measure'"
    " GROUP BY pipeline, stage"
)


def _latency(url: str, run_id: str, start_ms: int, span_s: int, *, expired: bool) -> list[_Latency]:
    minute_ms = start_ms // (1000 * MINUTE_S) * 1000 * MINUTE_S
    sql, begin_ms = (LATENCY_OF_MINUTES, minute_ms) if expired else (LATENCY, start_ms)
    at = (url, run_id)
    rows = _spans(_Latency, sql, at, start_ms=begin_ms, span_s=span_s, definition=LATEST)
    into_it_s = (start_ms - begin_ms) / 1000
    return [replace(row, at_s=max(0.0, row.at_s - into_it_s)) for row in rows]


def _spans(
    row: type[_P], sql: str, at: tuple[str, str], *, start_ms: int, span_s: int, **more: str
) -> list[_P]:
    """Rows by span of `span_s` seconds since `start_ms`. at: the store and the run; more:
    parameters of the query."""
    url, run_id = at
    spans = {"start": str(start_ms), "span": str(span_s * 1000)}
    rows = query_as(row, url, sql, run_id=run_id, **spans, **more)
    return [replace(each, at_s=each.span * span_s) for each in rows]


def _by_stage(rows: Iterable[_S], value: Callable[[_S], float]) -> ByStage:
    by_stage: defaultdict[str, defaultdict[str, list[_S]]]
    by_stage = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_stage[row.pipeline][row.stage].append(row)
    return {
        pipeline: {stage: _curve(own, value) for stage, own in stages.items()}
        for pipeline, stages in by_stage.items()
    }


def _rates(rows: Sequence[_Records], span_s: float) -> ByStage:
    """Records per second; 0 for a span without a row."""
    last = max((row.span for row in rows), default=-1)
    curves = _by_stage(rows, lambda row: row.records / span_s)
    for stages in curves.values():
        for stage, curve in stages.items():
            known = dict(curve)
            times = (span * span_s for span in range(last + 1))
            stages[stage] = tuple((at_s, known.get(at_s, 0.0)) for at_s in times)
    return curves


def _by_service(rows: Iterable[_Usage], value: Callable[[_Usage], float]) -> dict[str, Curve]:
    by_service: defaultdict[str, list[_Usage]] = defaultdict(list)
    for row in rows:
        by_service[row.pipeline or row.service].append(row)
    return {name: _curve(own, value) for name, own in by_service.items()}


def _curve(rows: Iterable[_P], value: Callable[[_P], float]) -> Curve:
    return tuple((row.at_s, float(value(row))) for row in rows)


def _shares(url: str, run_id: str) -> ByStage:
    curves: defaultdict[str, dict[str, Curve]] = defaultdict(dict)
    for row in query(url, SHARES, run_id=run_id):
        points = zip(row["percentiles_ms"], LEVELS, strict=True)
        curve = tuple((float(ms), 100 * level) for ms, level in points)
        curves[row["pipeline"]][row["stage"]] = curve
    return dict(curves)
