"""The newest results of a watch, from all of its runs."""

from dataclasses import dataclass

from services.runtime.clickhouse import query, query_as


@dataclass(frozen=True)
class RecentOutputs:
    """Paired outputs of the last seconds, and their latency, milliseconds."""

    outputs: int
    p50_ms: int
    p99_ms: int
    max_ms: int


@dataclass(frozen=True)
class Trouble:
    """The latest problem of a watch. topic: empty if it concerns none."""

    topic: str
    reason: str


def runs_of_watch(url: str, watch: str) -> dict[str, bool]:
    """The runs of a watch, and whether each is concluded."""
    rows = query(
        url,
        "SELECT run_id, concluded FROM tidegauge.runs WHERE match(run_id,"
        " concat('^watch-', {name:String}, '-[0-9]{8}-[0-9]{6}(-[0-9a-f]+)?$'))",
        name=watch,
    )
    return {row["run_id"]: bool(row["concluded"]) for row in rows}


def recent_outputs(url: str, watch: str, seconds: int) -> RecentOutputs | None:
    """The outputs of the last seconds; None without any."""
    rows = query_as(
        RecentOutputs,
        url,
        "SELECT sum(l.count) AS outputs,"
        " quantileExactWeighted(0.5)(latency_ms, l.count) AS p50_ms,"
        " quantileExactWeighted(0.99)(latency_ms, l.count) AS p99_ms, max(latency_ms) AS max_ms"
        " FROM tidegauge.results_latency AS l WHERE pipeline = {name:String}"
        " AND startsWith(run_id, 'watch-')"
        " AND l.time > now64(3) - toIntervalSecond({seconds:UInt32}) HAVING outputs > 0",
        name=watch,
        seconds=str(seconds),
    )
    return rows[0] if rows else None


def recent_faults(url: str, watch: str, seconds: int) -> dict[str, int]:
    """Outputs of the last seconds by verdict other than exact."""
    rows = query(
        url,
        "SELECT sum(v.missing) AS missing, sum(v.late) AS late, sum(v.duplicate) AS duplicate,"
        " sum(v.unexpected) AS unexpected FROM tidegauge.results_verdicts AS v"
        " WHERE pipeline = {name:String} AND startsWith(run_id, 'watch-')"
        " AND v.time > now64(3) - toIntervalSecond({seconds:UInt32})",
        name=watch,
        seconds=str(seconds),
    )
    return {verdict: int(count) for verdict, count in rows[0].items()}


def last_trouble(url: str, watch: str, since_ms: int) -> Trouble | None:
    """The latest problem of a watch since a time, epoch milliseconds; None without one."""
    rows = query_as(
        Trouble,
        url,
        "SELECT JSONExtractString(detail, 'topic') AS topic, JSONExtractString(detail, 'reason') AS"
        " reason FROM tidegauge.results_lifecycle AS l"
        " WHERE event = 'watch_trouble' AND JSONExtractString(detail, 'watch') = {name:String}"
        " AND reason != '' AND l.time >= fromUnixTimestamp64Milli({since_ms:Int64})"
        " ORDER BY l.time DESC LIMIT 1",
        name=watch,
        since_ms=str(since_ms),
    )
    return rows[0] if rows else None
