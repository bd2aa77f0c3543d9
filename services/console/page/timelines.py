"""The timelines of one run from ClickHouse: the curves of the page.

A long run is summarised over at most MOST_SPANS equal spans; percentiles of a span are exact, from
raw counts. If raw rows have expired, the sums per minute are used, and a span of latencies is one
or more whole minutes.
"""

from dataclasses import dataclass
from typing import Any

from services.runtime.clickhouse import query

MOST_SPANS = 240
MINUTE_S = 60
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


def read_timelines(url: str, run_id: str, *, expired: bool) -> Timelines | None:
    """The curves of a run; None if it ended before its load began. expired: whether its counts per
    second have been deleted. Raises QueryError."""
    phases = _phases(url, run_id)
    if not phases:
        return None
    start_ms = min(start for start, _end in phases.values())
    most_s = max(end for _start, end in phases.values()) / 1000 - start_ms / 1000
    span_s = span_of(most_s)
    latency_span_s = max(span_s, MINUTE_S) if expired else span_s
    latency = _latency(url, run_id, start_ms, latency_span_s, expired=expired)
    throughput = _asked(url, THROUGHPUT, run_id, start_ms, span_s)
    usage = _asked(url, RESOURCES, run_id, start_ms, span_s)
    # A whole minute may end long after the run.
    ends_s = [row["at_s"] + (0 if expired else latency_span_s) for row in latency]
    ends_s += [row["at_s"] + span_s for row in (*throughput, *usage)]
    measure = phases.get("measure")
    return Timelines(
        end_s=max([most_s, *ends_s]),
        latency_span_s=latency_span_s,
        measure=measure and ((measure[0] - start_ms) / 1000, (measure[1] - start_ms) / 1000),
        median_ms=_by_stage(latency, lambda row: row["percentiles_ms"][0]),
        p99_ms=_by_stage(latency, lambda row: row["percentiles_ms"][1]),
        shares=_shares(url, run_id),
        records=_rates([row for row in throughput if row["pipeline"]], span_s),
        input_records=_rates([row for row in throughput if not row["pipeline"]], span_s)
        .get("", {})
        .get("", ()),
        cpu_cores=_by_service(usage, "cpu_cores"),
        memory_mb=_by_service(usage, "memory_mb"),
    )


def span_of(length_s: float) -> int:
    """The shortest round span, in seconds, of which MOST_SPANS cover a length."""
    return next((span for span in SPANS_S if length_s / span <= MOST_SPANS), SPANS_S[-1])


_SPAN = "intDiv(toUnixTimestamp64Milli({time}) - {{start:Int64}}, {{span:Int64}}) AS span"
LATENCY = (
    "SELECT pipeline, stage, "
    + _SPAN.format(time="second")
    + ", quantilesExactWeighted(0.5, 0.99)(latency_ms, r.count) AS percentiles_ms"
    " FROM tidegauge.results_latency AS r"
    " WHERE run_id = {run_id:String} AND definition = 'latest'"
    " GROUP BY pipeline, stage, span ORDER BY pipeline, stage, span"
)
LATENCY_OF_MINUTES = (
    "SELECT pipeline, stage, "
    + _SPAN.format(time="toDateTime64(minute, 3)")
    + ", quantilesExactWeighted(0.5, 0.99)(latency_ms, r.count) AS percentiles_ms"
    " FROM tidegauge.latency_minutes AS r"
    " WHERE run_id = {run_id:String} AND definition = 'latest'"
    " GROUP BY pipeline, stage, span ORDER BY pipeline, stage, span"
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
    " max(memory_bytes) / 1e6 AS memory_mb FROM tidegauge.results_resources AS r"
    " WHERE run_id = {run_id:String} AND time >= fromUnixTimestamp64Milli({start:Int64})"
    " GROUP BY service, pipeline, span ORDER BY service, pipeline, span"
)
SHARES = (
    f"SELECT pipeline, stage, quantilesExactWeighted({', '.join(str(x) for x in LEVELS)})"
    "(latency_ms, r.count) AS percentiles_ms FROM tidegauge.latency_minutes AS r"
    " WHERE run_id = {run_id:String} AND definition = 'latest' AND phase = 'measure'"
    " GROUP BY pipeline, stage"
)
PHASES = (
    "SELECT phase, JSONExtractInt(detail, 'start_ms') AS start_ms,"
    " JSONExtractInt(detail, 'end_ms') AS end_ms FROM tidegauge.results_lifecycle"
    " WHERE run_id = {run_id:String} AND event = 'phase_started' AND start_ms > 0"
)


def _phases(url: str, run_id: str) -> dict[str, tuple[int, int]]:
    rows = query(url, PHASES, run_id=run_id)
    return {row["phase"]: (row["start_ms"], row["end_ms"]) for row in rows}


def _latency(
    url: str, run_id: str, start_ms: int, span_s: int, *, expired: bool
) -> list[dict[str, Any]]:
    if not expired:
        return _asked(url, LATENCY, run_id, start_ms, span_s)
    minute_ms = start_ms // (1000 * MINUTE_S) * 1000 * MINUTE_S
    rows = _asked(url, LATENCY_OF_MINUTES, run_id, minute_ms, span_s)
    into_it_s = (start_ms - minute_ms) / 1000
    return [row | {"at_s": max(0.0, row["at_s"] - into_it_s)} for row in rows]


def _asked(url: str, sql: str, run_id: str, start_ms: int, span_s: int) -> list[dict[str, Any]]:
    """Rows by span of `span_s` seconds; `at_s` is the start of each, in seconds since
    `start_ms`."""
    rows = query(url, sql, run_id=run_id, start=str(start_ms), span=str(span_s * 1000))
    return [row | {"at_s": row["span"] * span_s} for row in rows]


def _by_stage(rows: list[dict[str, Any]], value: Any) -> ByStage:
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        found.setdefault(row["pipeline"], {}).setdefault(row["stage"], []).append(row)
    return {
        pipeline: {stage: _curve(own, value) for stage, own in stages.items()}
        for pipeline, stages in found.items()
    }


def _rates(rows: list[dict[str, Any]], span_s: float) -> ByStage:
    """Records per second; 0 for a span without a row."""
    last = max((row["span"] for row in rows), default=-1)
    found = _by_stage(rows, lambda row: row["records"] / span_s)
    for stages in found.values():
        for stage, curve in stages.items():
            known = dict(curve)
            times = (span * span_s for span in range(last + 1))
            stages[stage] = tuple((at_s, known.get(at_s, 0.0)) for at_s in times)
    return found


def _by_service(rows: list[dict[str, Any]], field: str) -> dict[str, Curve]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["pipeline"] or row["service"], []).append(row)
    return {name: _curve(own, lambda row: row[field]) for name, own in found.items()}


def _curve(rows: list[dict[str, Any]], value: Any) -> Curve:
    return tuple((row["at_s"], float(value(row))) for row in rows)


def _shares(url: str, run_id: str) -> ByStage:
    found: ByStage = {}
    for row in query(url, SHARES, run_id=run_id):
        points = zip(row["percentiles_ms"], LEVELS, strict=True)
        curve = tuple((float(ms), 100 * level) for ms, level in points)
        found.setdefault(row["pipeline"], {})[row["stage"]] = curve
    return found
