"""Runs: their requests, events and conclusions; the newest results of a watch; the state of the
store.
"""

import json
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypedDict

from services.runtime.clickhouse import QueryError, query, query_as

Json: TypeAlias = dict[str, Any]  # the content of an event or of a request, as it is stored


class UnknownRunError(QueryError):
    """The store does not know a run."""


class RunRow(TypedDict):
    """A row of the view `runs` (docs/schema.md), with the columns that lists show."""

    run_id: str
    workload: str
    pipelines: list[str]
    phase: str
    concluded: bool
    valid: bool | None
    clean: bool | None
    invalid_reasons: list[str]
    steady: bool | None
    failures: list[str]


@dataclass(frozen=True)
class Phase:
    """A phase of the load as scheduled, epoch milliseconds; None if an event lacks them."""

    start_ms: int | None
    end_ms: int | None


@dataclass(frozen=True)
class StoredConclusion:
    """The newest conclusion of a kind. run_id: of the run that it is about, or is reported for."""

    kind: str
    run_id: str
    valid: bool
    invalid_reasons: list[str]
    detail: Json


@dataclass(frozen=True)
class CurrentRun:
    """A run in progress. still: what is not steady yet, while it warms up."""

    run_id: str
    workload: str
    pipelines: list[str]
    phase: str
    still: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PipelineEvent:
    """`pipeline_down` or `pipeline_up` of a pipeline, epoch milliseconds."""

    pipeline: str
    event: str
    time_ms: int


@dataclass(frozen=True)
class KilledProcess:
    """Processes that the workload killed, terminated or paused. said: `kill of the driver`."""

    time_ms: int
    said: str


@dataclass(frozen=True)
class DeadLetters:
    """Records that could not be used: how many, and the reason of one of them."""

    count: int
    reason: str


def request_of(url: str, run_id: str) -> Json:
    """The whole request of a run or of a watch's run. Raises UnknownRunError."""
    rows = query(
        url,
        "SELECT detail FROM tidegauge.results_lifecycle AS l WHERE run_id = {run_id:String}"
        " AND event IN ('run_requested', 'watch_begun') ORDER BY l.time LIMIT 1",
        run_id=run_id,
    )
    if not rows:
        raise UnknownRunError(f"There is no run {run_id!r}; list them with: ./tidegauge runs")
    return _json(rows[0]["detail"])


def conclusion_of(url: str, run_id: str) -> StoredConclusion | None:
    """The conclusion of a run; None if it is not concluded."""
    rows = query(
        url,
        "SELECT toString(kind) AS kind, run_id, valid, invalid_reasons, detail"
        " FROM tidegauge.results_conclusions AS k"
        " WHERE run_id = {run_id:String} AND kind = 'run'"
        " ORDER BY k.time DESC, k._offset DESC LIMIT 1",
        run_id=run_id,
    )
    return _concluded(rows[0]) if rows else None


def conclusions_about(url: str, run_id: str) -> list[StoredConclusion]:
    """Conclusions about several runs that include this one, or about its comparison with a
    baseline; oldest first."""
    rows = query(
        url,
        "SELECT toString(kind) AS kind, run_id, valid, invalid_reasons, detail"
        " FROM tidegauge.results_conclusions AS c"
        " WHERE kind IN ('repetition', 'interleaved', 'baseline')"
        " AND has(JSONExtract(detail, 'runs', 'Array(String)'), {run_id:String})"
        " ORDER BY c.time, c._offset",
        run_id=run_id,
    )
    return [_concluded(row) for row in rows]


def is_concluded(url: str, run_id: str) -> bool:
    """Whether the store has the conclusion of a run."""
    rows = query(
        url,
        "SELECT count() AS n FROM tidegauge.results_conclusions"
        " WHERE run_id = {run_id:String} AND kind = 'run'",
        run_id=run_id,
    )
    return bool(rows[0]["n"])


def newest_runs(url: str, limit: int) -> list[RunRow]:
    """The newest runs first, without steps of searches, with all columns of the view `runs`: one
    more than the limit if there are more."""
    return query_as(
        RunRow,
        url,
        "SELECT * FROM tidegauge.runs WHERE step_of = '' ORDER BY requested_at DESC"
        " LIMIT {most:UInt32}",
        most=str(limit + 1),
    )


def latest_run(url: str) -> str:
    """The newest concluded run, or else the newest, because a watch always has a run in progress.
    Raises QueryError if there is none."""
    rows = query(
        url,
        "SELECT run_id FROM tidegauge.runs WHERE step_of = ''"
        " ORDER BY concluded DESC, requested_at DESC LIMIT 1",
    )
    if not rows:
        raise QueryError("There is no run yet; start one with: ./tidegauge run")
    return str(rows[0]["run_id"])


def current_run(url: str) -> CurrentRun | None:
    """The run in progress; None without one. The runs of a watch do not count."""
    rows = query(
        url,
        "SELECT run_id, workload, pipelines, phase FROM tidegauge.runs"
        " WHERE NOT concluded AND empty(failures) AND NOT startsWith(run_id, 'watch-')"
        " ORDER BY requested_at DESC LIMIT 1",
    )
    if not rows:
        return None
    steadiness = query(
        url,
        "SELECT detail FROM tidegauge.results_lifecycle WHERE event = 'steadiness'"
        " AND run_id = {run_id:String} ORDER BY time DESC, _offset DESC LIMIT 1",
        run_id=rows[0]["run_id"],
    )
    still = _json(steadiness[0]["detail"])["still"] if steadiness else []
    return CurrentRun(**rows[0], still=still)


def suite_position(url: str) -> Json | None:
    """The fields of SuitePosition of the running conductor's suite; None without one."""
    rows = query(
        url,
        "SELECT detail FROM tidegauge.results_lifecycle WHERE event = 'suite' AND time >="
        " (SELECT max(e.time) FROM tidegauge.results_lifecycle AS e"
        " WHERE e.event = 'service_started' AND e.producer = 'conductor')"
        " ORDER BY time DESC, _offset DESC LIMIT 1",
    )
    return _json(rows[0]["detail"]) if rows else None


def phases_of(url: str, run_id: str) -> dict[str, Phase]:
    """The phases of the load that a run began, by name."""
    rows = query(
        url,
        "SELECT phase, detail FROM tidegauge.results_lifecycle WHERE run_id = {run_id:String}"
        " AND event = 'phase_started' AND phase IN ('warm_up', 'measure', 'cool_down')",
        run_id=run_id,
    )
    return {row["phase"]: _phase(_json(row["detail"])) for row in rows}


def engine_versions(url: str, run_id: str) -> dict[str, str]:
    """The version of the engine of each pipeline that reported one; empty for others."""
    rows = query(
        url,
        "SELECT pipeline, detail FROM tidegauge.results_lifecycle"
        " WHERE run_id = {run_id:String} AND event = 'ready' AND pipeline != ''",
        run_id=run_id,
    )
    return {row["pipeline"]: _version(_json(row["detail"])) for row in rows}


def outages(url: str, run_id: str) -> list[PipelineEvent]:
    """When pipelines were found dead and when their queries ran again, in order of time."""
    return query_as(
        PipelineEvent,
        url,
        "SELECT pipeline, event, toUnixTimestamp64Milli(time) AS time_ms"
        " FROM tidegauge.results_lifecycle WHERE run_id = {run_id:String}"
        " AND event IN ('pipeline_down', 'pipeline_up') ORDER BY time",
        run_id=run_id,
    )


def kills(url: str, run_id: str) -> list[KilledProcess]:
    """The kills of a run, in order of time."""
    return query_as(
        KilledProcess,
        url,
        "SELECT toUnixTimestamp64Milli(time) AS time_ms, ifNull(nullIf(JSONExtractString(detail,"
        " 'said'), ''), concat('kill of the ', JSONExtractString(detail, 'target'))) AS said"
        " FROM tidegauge.results_lifecycle WHERE run_id = {run_id:String}"
        " AND event = 'killed' ORDER BY time",
        run_id=run_id,
    )


def way_in(url: str, run_id: str) -> Json | None:
    """What became of the frames of a run; None if records were sent directly to Kafka."""
    rows = query(
        url,
        "SELECT detail FROM tidegauge.results_lifecycle"
        " WHERE run_id = {run_id:String} AND event = 'way_in' ORDER BY time DESC LIMIT 1",
        run_id=run_id,
    )
    return _json(rows[0]["detail"]) if rows else None


def runs_of_series(url: str, series: str) -> list[tuple[str, Json]]:
    """The runs of a series with increasing numbers of workers, in order, each with the fields of
    its schemas.search.Scaled."""
    rows = query(
        url,
        "SELECT run_id, detail FROM tidegauge.results_lifecycle AS e"
        " WHERE event = 'run_requested'"
        " AND JSONExtractString(detail, 'scaled', 'series') = {series:String}"
        " ORDER BY e.time, run_id",
        series=series,
    )
    return [(row["run_id"], _json(row["detail"])["scaled"]) for row in rows]


def projected(url: str) -> dict[tuple[str, int], int]:
    """The offset up to which each topic and partition is projected."""
    rows = query(url, "SELECT topic, partition, next_offset FROM tidegauge.projection_progress")
    return {(row["topic"], row["partition"]): row["next_offset"] for row in rows}


def dead_letters(url: str) -> DeadLetters:
    """All dead letters of the store."""
    sql = "SELECT count() AS count, any(d.reason) AS reason FROM tidegauge.dead_letter AS d"
    return query_as(DeadLetters, url, sql)[0]


def _json(text: str) -> Json:
    content: Json = json.loads(text)
    return content


def _concluded(row: Json) -> StoredConclusion:
    changes = {"valid": bool(row["valid"]), "detail": _json(row["detail"])}
    return StoredConclusion(**(row | changes))


def _phase(detail: Json) -> Phase:
    start_ms, end_ms = (detail.get(name) for name in ("start_ms", "end_ms"))
    return Phase(
        start_ms if isinstance(start_ms, int) else None, end_ms if isinstance(end_ms, int) else None
    )


def _version(detail: Json) -> str:
    versions = (str(text) for name, text in detail.items() if name.endswith("version"))
    return next(versions, "")


@dataclass(frozen=True)
class RecentOutputs:
    """Paired outputs of the last seconds, and their latency, milliseconds."""

    outputs: int
    p50_ms: int
    p99_ms: int
    max_ms: int


@dataclass(frozen=True)
class LatestTrouble:
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


def recent_outputs(url: str, watch: str, stage: str, seconds: int) -> RecentOutputs | None:
    """The outputs of a stage in the last seconds, with their latency `latest`; None without any."""
    rows = query_as(
        RecentOutputs,
        url,
        "SELECT sum(l.count) AS outputs,"
        " quantileExactWeighted(0.5)(latency_ms, l.count) AS p50_ms,"
        " quantileExactWeighted(0.99)(latency_ms, l.count) AS p99_ms, max(latency_ms) AS max_ms"
        " FROM tidegauge.results_latency AS l WHERE pipeline = {name:String}"
        " AND stage = {stage:String} AND startsWith(run_id, 'watch-') AND definition = 'latest'"
        " AND l.time > now64(3) - toIntervalSecond({seconds:UInt32}) HAVING outputs > 0",
        name=watch,
        stage=stage,
        seconds=str(seconds),
    )
    return rows[0] if rows else None


def recent_faults(url: str, watch: str, stage: str, seconds: int) -> dict[str, int]:
    """Outputs of a stage in the last seconds by verdict other than exact."""
    rows = query(
        url,
        "SELECT sum(v.missing) AS missing, sum(v.late) AS late, sum(v.duplicate) AS duplicate,"
        " sum(v.unexpected) AS unexpected FROM tidegauge.results_verdicts AS v"
        " WHERE pipeline = {name:String} AND stage = {stage:String}"
        " AND startsWith(run_id, 'watch-')"
        " AND v.time > now64(3) - toIntervalSecond({seconds:UInt32})",
        name=watch,
        stage=stage,
        seconds=str(seconds),
    )
    return {verdict: int(count) for verdict, count in rows[0].items()}


def last_trouble(url: str, watch: str, since_ms: int) -> LatestTrouble | None:
    """The latest problem of a watch since a time, epoch milliseconds; None without one."""
    rows = query_as(
        LatestTrouble,
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
