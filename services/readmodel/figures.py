"""The figures of one run's measured phase, by pipeline and stage.

A time span is begin and end, epoch milliseconds, the end exclusive.
"""

from dataclasses import dataclass
from typing import TypeAlias

from schemas.percentiles import LATENCIES, RANKED
from schemas.protocol import VERDICTS, floor_run_id
from schemas.report import Number, SchedulerDelay
from schemas.threshold import LATENCY_FIGURES
from services.runtime.clickhouse import query, query_as

SOCKET_FIGURES = tuple(f"{name}_ns" for name in (*RANKED, "mean"))
Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Verdicts:
    """Outputs of a stage by verdict."""

    pipeline: str
    stage: str
    verdicts: dict[str, int]


@dataclass(frozen=True)
class LatencyRow:
    """Latency of a stage by one definition: number of outputs, of these with a negative latency,
    and its figures by their names in `schemas.percentiles.LATENCIES`, milliseconds."""

    pipeline: str
    stage: str
    definition: str
    count: int
    negative: int
    latencies: dict[str, Number]


@dataclass(frozen=True)
class StageCostRow:
    """What a stage adds to the latency of the nearest measured stage that it reads, ms."""

    pipeline: str
    stage: str
    stage_before: str
    p50: int
    p99: int


@dataclass(frozen=True)
class OutputRow:
    """Records that a stage published in a span. aborted: of aborted transactions, not among
    them."""

    pipeline: str
    stage: str
    records: int
    aborted: int


@dataclass(frozen=True)
class LagRow:
    """Unread records of a pipeline in a span: the maximum over time and stages, and at the end."""

    pipeline: str
    max: int
    end: int


@dataclass(frozen=True)
class UsageRow:
    """Resources of a service, or of a pipeline, in a span. sampled_s: seconds covered by samples.
    samples: time (epoch ms), CPU seconds and length (s) of each sample of a pipeline.
    *_by_process: of the processes of a pipeline; empty in events of versions without it."""

    service: str
    pipeline: str
    cpu_cores: Number
    cpu_seconds: Number
    memory_bytes_max: int
    heap_used_bytes_min: int | None
    heap_used_bytes_mean: Number | None
    heap_used_bytes_max: int | None
    sampled_s: Number
    cpu_seconds_by_process: dict[str, Number]
    received_bytes_by_process: dict[str, Number]
    sent_bytes_by_process: dict[str, Number]
    samples: list[tuple[int, Number, Number]]


@dataclass(frozen=True)
class Sent:
    """Records of a run that the broker acknowledged, and their send delays, milliseconds."""

    records: int
    p50: Number | None
    p99: Number | None
    max: Number | None


@dataclass(frozen=True)
class GroupLagRow:
    """How far a consumer group is behind in a topic, maximum and at the end: unread records, age of
    the oldest record that it reads next and time until it has read all, seconds; None if
    unknown."""

    group: str
    topic: str
    max: int
    last: int
    max_s: float | None
    last_s: float | None
    caught_up_in_s: float | None


@dataclass(frozen=True)
class LossRow:
    """What was lost of the whole load of a run sent over the network, as `schemas.report.Loss`."""

    pipeline: str
    stage: str
    due: int
    received: int
    lost: int
    before: int | None
    inside: int | None
    after: int | None


@dataclass(frozen=True)
class SocketRow:
    """Latency of a stage behind sockets: number of outputs, and figures in nanoseconds."""

    pipeline: str
    stage: str
    count: int
    figures: dict[str, Number]


_LATENCIES = (
    f"SELECT pipeline, stage, definition, count, negative, {', '.join(LATENCY_FIGURES)}"
    " FROM tidegauge.latency_summary WHERE run_id = {run_id:String} AND phase = 'measure'"
)


def verdicts(url: str, run_id: str) -> list[Verdicts]:
    """Verdicts of each stage."""
    rows = query(
        url,
        "SELECT * FROM tidegauge.verdict_totals"
        " WHERE run_id = {run_id:String} AND phase = 'measure'",
        run_id=run_id,
    )
    return [
        Verdicts(row["pipeline"], row["stage"], {name: int(row[name]) for name in VERDICTS})
        for row in rows
    ]


def latencies(url: str, run_id: str) -> list[LatencyRow]:
    """Latencies of each stage by definition."""
    return _latencies(url, _LATENCIES, run_id)


def floor(url: str, run_id: str) -> LatencyRow | None:
    """Latency of a plain copy before a run; None if it was not measured, or its own run was not
    valid."""
    rows = _latencies(
        url,
        f"{_LATENCIES} AND definition = 'latest' AND run_id IN"
        " (SELECT run_id FROM tidegauge.runs WHERE run_id = {run_id:String} AND valid) LIMIT 1",
        floor_run_id(run_id),
    )
    return rows[0] if rows else None


def _latencies(url: str, sql: str, run_id: str) -> list[LatencyRow]:
    return [
        LatencyRow(
            latencies={name: row.pop(f"{name}_ms") for name in LATENCIES},
            **row,
        )
        for row in query(url, sql, run_id=run_id)
    ]


def losses(url: str, run_id: str) -> list[LossRow]:
    """What was lost, by stage; none if records were sent directly to Kafka."""
    return query_as(
        LossRow,
        url,
        "SELECT pipeline, stage, due, received, lost, lost_before AS before,"
        " lost_inside AS inside, lost_after AS after"
        " FROM tidegauge.losses WHERE run_id = {run_id:String}",
        run_id=run_id,
    )


def socket_latencies(url: str, run_id: str) -> list[SocketRow]:
    """Latency of each stage behind sockets."""
    rows = query(
        url,
        f"SELECT pipeline, stage, count, {', '.join(SOCKET_FIGURES)}"
        " FROM tidegauge.socket_latencies WHERE run_id = {run_id:String}",
        run_id=run_id,
    )
    return [
        SocketRow(
            row["pipeline"],
            row["stage"],
            int(row["count"]),
            {
                name.removesuffix("_ns"): value
                for name in SOCKET_FIGURES
                if (value := row[name]) is not None
            },
        )
        for row in rows
    ]


def stage_costs(url: str, run_id: str) -> list[StageCostRow]:
    """The latency that each stage of a chain adds."""
    return query_as(
        StageCostRow,
        url,
        "SELECT pipeline, stage, stage_before, p50_cost_ms AS p50, p99_cost_ms AS p99"
        " FROM tidegauge.stage_cost"
        " WHERE run_id = {run_id:String} AND phase = 'measure' AND definition = 'latest'"
        " AND stage_before IS NOT NULL",
        run_id=run_id,
    )


def outputs(url: str, run_id: str, span: Span) -> list[OutputRow]:
    """Records that each stage published in a span."""
    return query_as(
        OutputRow,
        url,
        "SELECT pipeline, stage, sum(t.records) AS records, sum(t.aborted) AS aborted"
        " FROM tidegauge.results_throughput AS t"
        " WHERE run_id = {run_id:String} AND pipeline != ''"
        f" AND {_within('second')} GROUP BY pipeline, stage",
        run_id=run_id,
        **_times(span),
    )


def lags(url: str, run_id: str, span: Span) -> list[LagRow]:
    """Unread records of each pipeline that reported them."""
    return query_as(
        LagRow,
        url,
        'SELECT pipeline, max(most) AS "max", max(newest) AS "end" FROM'
        " (SELECT pipeline, stage, max(p.lag_records) AS most,"
        " argMax(p.lag_records, (p.time, p._offset)) AS newest"
        " FROM tidegauge.results_pipeline AS p"
        " WHERE run_id = {run_id:String} AND p.lag_records IS NOT NULL"
        f" AND {_within('p.time')} GROUP BY pipeline, stage) GROUP BY pipeline",
        run_id=run_id,
        **_times(span),
    )


def usage(url: str, run_id: str, span: Span) -> list[UsageRow]:
    """Resources of every service and pipeline, ordered by name."""
    return query_as(
        UsageRow,
        url,
        "SELECT service, pipeline, sum(r.cpu_seconds) AS cpu_seconds,"
        " sum(interval_s) AS sampled_s,"
        " cpu_seconds / sampled_s AS cpu_cores, max(memory_bytes) AS memory_bytes_max,"
        " min(heap_used_bytes) AS heap_used_bytes_min, max(heap_used_bytes) AS heap_used_bytes_max,"
        " sum(heap_used_bytes * interval_s) / sumIf(interval_s, heap_used_bytes IS NOT NULL)"
        " AS heap_used_bytes_mean, sumMap(r.cpu_seconds_by_process) AS cpu_seconds_by_process,"
        " sumMap(r.received_bytes_by_process) AS received_bytes_by_process,"
        " sumMap(r.sent_bytes_by_process) AS sent_bytes_by_process,"
        " groupArrayIf((toUnixTimestamp64Milli(time), r.cpu_seconds, interval_s), r.pipeline != '')"
        " AS samples"
        " FROM tidegauge.results_resources AS r WHERE run_id = {run_id:String}"
        f" AND {_within('time')} GROUP BY service, pipeline ORDER BY service, pipeline",
        run_id=run_id,
        **_times(span),
    )


def scheduler_delays(url: str, run_id: str) -> dict[str, SchedulerDelay]:
    """Scheduler delay of each pipeline that reported it."""
    rows = query(
        url,
        "SELECT pipeline, tasks, p50_ms AS p50, p99_ms AS p99, max_ms AS max, mean_ms AS mean"
        " FROM tidegauge.scheduler_delays WHERE run_id = {run_id:String}",
        run_id=run_id,
    )
    return {row.pop("pipeline"): SchedulerDelay.model_validate(row) for row in rows}


def sent(url: str, run_id: str) -> Sent:
    """The input that the generator sent in the measured phase."""
    rows = query_as(
        Sent,
        url,
        "SELECT acknowledged AS records, send_delay_p50_ms AS p50, send_delay_p99_ms AS p99,"
        " send_delay_max_ms AS max"
        " FROM tidegauge.generator_summary WHERE run_id = {run_id:String} AND phase = 'measure'",
        run_id=run_id,
    )
    return rows[0] if rows else Sent(0, None, None, None)


def sent_until_ms(url: str, run_id: str) -> int:
    """End of the last second of the measure phase in which records were sent; 0 without one."""
    return _until_ms(url, "results_generator WHERE phase = 'measure' AND", run_id)


def read_until_ms(url: str, run_id: str) -> int:
    """End of the last second in which a watch read a record; 0 without one."""
    return _until_ms(url, "results_throughput WHERE", run_id)


def _until_ms(url: str, source: str, run_id: str) -> int:
    rows = query(
        url,
        "SELECT toUnixTimestamp64Milli(max(second)) + 1000 AS until_ms"
        f" FROM tidegauge.{source} run_id = {{run_id:String}} HAVING count() > 0",
        run_id=run_id,
    )
    return int(rows[0]["until_ms"]) if rows else 0


def input_records(url: str, run_id: str) -> int:
    """Input records of a watch's run, counted from the topics."""
    rows = query(
        url,
        "SELECT sum(records) AS total FROM tidegauge.results_throughput"
        " WHERE run_id = {run_id:String} AND pipeline = ''",
        run_id=run_id,
    )
    return int(rows[0]["total"])


def mean_bytes(url: str, run_id: str) -> dict[str, Number | None]:
    """Mean size of the values of `input` and `output` of a run, bytes; None without any."""
    rows = query(
        url,
        "SELECT if(pipeline = '', 'input', 'output') AS side, sum(t.bytes) / sum(t.records) AS mean"
        " FROM tidegauge.results_throughput AS t WHERE run_id = {run_id:String} AND records > 0"
        " GROUP BY side",
        run_id=run_id,
    )
    means: dict[str, Number | None] = {"input": None, "output": None}
    return means | {row["side"]: row["mean"] for row in rows}


def group_lags(url: str, run_id: str) -> list[GroupLagRow]:
    """How far each consumer group that a watch observed is behind, by topic."""
    return query_as(
        GroupLagRow,
        url,
        'SELECT group_id AS "group", topic, max(records_behind) AS max,'
        " argMax(records_behind, l.time) AS last, max(seconds_behind) AS max_s,"
        " argMax(tuple(seconds_behind), l.time).1 AS last_s,"
        " argMax(tuple(l.caught_up_in_s), l.time).1 AS caught_up_in_s"
        " FROM tidegauge.consumer_lag AS l"
        " WHERE run_id = {run_id:String} GROUP BY group_id, topic ORDER BY group_id, topic",
        run_id=run_id,
    )


def _within(column: str) -> str:
    """A condition that a time is within the span of `_times`."""
    return (
        f"{column} >= fromUnixTimestamp64Milli({{start:Int64}})"
        f" AND {column} < fromUnixTimestamp64Milli({{end:Int64}})"
    )


def _times(span: Span) -> dict[str, str]:
    return {"start": str(span[0]), "end": str(span[1])}
