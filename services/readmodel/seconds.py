"""Counts per second of one run. They expire after `keep_latency_days`, the sums per minute stay:
figures that need seconds are then unknown and must not be reported as zero."""

from collections import defaultdict
from dataclasses import dataclass
from typing import TypeAlias

from analysis.intervals import QUARTILES, Seconds
from schemas.percentiles import LEVELS
from schemas.protocol import INPUT_SECOND, MACHINE
from services.runtime.clickhouse import QueryError, query, query_as

Cell: TypeAlias = tuple[str, str, str]  # pipeline, stage and definition
BySecond: TypeAlias = dict[int, dict[int, int]]  # epoch second: latency in ms: outputs
FOR_EVER_MS = 2**53


@dataclass(frozen=True)
class StageSecond:
    """A second of the outputs of a stage: epoch seconds, the median latency (ms), outputs; and the
    number of outputs by latency."""

    pipeline: str
    stage: str
    at_s: int
    median_ms: float
    outputs: int
    latencies: dict[int, int]


@dataclass(frozen=True)
class LateSecond:
    """A second with judged outputs of a stage, epoch milliseconds, and how many were late."""

    stage: str
    second_ms: int
    late: int


@dataclass(frozen=True)
class LongestGap:
    """The longest time without output of a stage that ends with one, from the `number`th of some
    times on and not after the next; 0 is the time before the first of them."""

    pipeline: str
    stage: str
    number: int
    gap_ms: int


@dataclass(frozen=True)
class CpuSample:
    """CPU time of a pipeline, or of the machine (no pipeline), in the interval that ends at at_s,
    epoch seconds."""

    at_s: float
    interval_s: float
    cpu_seconds: float
    pipeline: str


_OF_RUN = "run_id = {run_id:String} AND phase = 'measure'"
_CELL = "pipeline, stage, definition"
_LEVELS = ", ".join(str(level) for level in (*QUARTILES, *LEVELS.values()))
_BELOW = ", ".join(
    f"sumIf(l.count, latency_ms <= q.places[{place}]) AS {figure}"
    for place, figure in enumerate(LEVELS, 3)
)
_SERIES = ", ".join(f"groupArray({figure}) AS below_{figure}" for figure in LEVELS)
_SPANS = f"""
SELECT
    {_CELL}, groupArray(counts) AS counts, groupArray(sums) AS sums, groupArray(held) AS held,
    {_SERIES}
FROM
(
    SELECT
        {_CELL}, intDiv(toUnixTimestamp(second), {{span_s:UInt32}}) AS at,
        sum(l.count) AS counts, sum(latency_ms * toInt64(l.count)) AS sums,
        sum(least(greatest(latency_ms, q.places[1]), q.places[2]) * toInt64(l.count)) AS held,
        {_BELOW}
    FROM tidegauge.results_latency AS l
    INNER JOIN
    (
        SELECT {_CELL}, quantilesExactWeighted({_LEVELS})(latency_ms, m.count) AS places
        FROM tidegauge.latency_minutes AS m WHERE {_OF_RUN} GROUP BY {_CELL}
    ) AS q USING ({_CELL})
    WHERE {_OF_RUN}
    GROUP BY {_CELL}, at
    ORDER BY {_CELL}, at
)
GROUP BY {_CELL}
"""
_OUTPUTS = f"""
SELECT {_CELL}, groupArray(latency_ms) AS latencies_ms, groupArray(outputs) AS outputs
FROM
(
    SELECT {_CELL}, latency_ms, sum(m.count) AS outputs
    FROM tidegauge.latency_minutes AS m WHERE {_OF_RUN}
    GROUP BY {_CELL}, latency_ms
)
GROUP BY {_CELL}
"""
_OF_RESTART = (
    " WHERE run_id = {run_id:String} AND pipeline = {pipeline:String} AND phase = 'measure'"
    " AND toUnixTimestamp64Milli(second) + 1000 > {down:Int64}"
    " AND toUnixTimestamp64Milli(second) + 1000 <= {end:Int64}"
)


def expired(url: str, run_id: str) -> bool:
    """Whether some or all seconds of a run have expired."""
    # The store writes seconds before minutes, so in this order seconds never lag behind.
    of_minutes = _outputs(url, "latency_minutes", run_id)
    return _outputs(url, "results_latency", run_id) < of_minutes


def _outputs(url: str, table: str, run_id: str) -> int:
    rows = query(
        url,
        f"SELECT sum(r.count) AS outputs FROM tidegauge.{table} AS r"
        " WHERE run_id = {run_id:String}",
        run_id=run_id,
    )
    return int(rows[0]["outputs"])


def spans(url: str, run_id: str, span_s: int) -> dict[Cell, tuple[Seconds, dict[int, int]]]:
    """The counts of every `span_s` seconds of the measured phase, and of all of it the outputs by
    latency, ms."""
    outputs = {
        _cell(row): dict(zip(row["latencies_ms"], row["outputs"], strict=True))
        for row in query(url, _OUTPUTS, run_id=run_id)
    }
    cells = {}
    for row in query(url, _SPANS, run_id=run_id, span_s=str(span_s)):
        below = {figure: row[f"below_{figure}"] for figure in LEVELS}
        counts = Seconds(row["counts"], row["sums"], row["held"], below)
        cells[_cell(row)] = (counts, outputs[_cell(row)])
    return cells


def _cell(row: dict[str, str]) -> Cell:
    return row["pipeline"], row["stage"], row["definition"]


def medians(url: str, run_id: str) -> list[StageSecond]:
    """Every second of every stage, of all phases."""
    rows = query(
        url,
        "SELECT pipeline, stage, intDiv(toUnixTimestamp64Milli(second), 1000) AS at_s,"
        " quantileExactWeighted(0.5)(latency_ms, r.count) AS median_ms, sum(r.count) AS outputs,"
        " sumMap([latency_ms], [r.count]) AS latencies"
        " FROM tidegauge.results_latency AS r WHERE run_id = {run_id:String}"
        " AND definition = 'latest' GROUP BY pipeline, stage, second",
        run_id=run_id,
    )
    return [
        StageSecond(latencies=dict(zip(*row.pop("latencies"), strict=True)), **row) for row in rows
    ]


def longest_gaps(url: str, run_id: str, times_ms: list[int]) -> list[LongestGap]:
    """The longest gaps of each stage after each of the times, epoch milliseconds in order. Empty if
    the run did not publish single outputs, or they have expired."""
    return query_as(
        LongestGap,
        url,
        "WITH arrayMap(text -> toInt64(text), splitByChar(',', {times:String})) AS times"
        " SELECT pipeline, stage, toUInt32(arrayCount(at -> at < appended_ms, times)) AS number,"
        " max(appended_ms - greatest(before_ms, times[number])) AS gap_ms FROM"
        " (SELECT pipeline, stage, appended_ms, lagInFrame(appended_ms, 1, appended_ms)"
        " OVER (PARTITION BY pipeline, stage ORDER BY appended_ms) AS before_ms FROM"
        " (SELECT DISTINCT pipeline, stage, appended_ms FROM tidegauge.results_pairs"
        " WHERE run_id = {run_id:String}))"
        " GROUP BY pipeline, stage, number ORDER BY pipeline, stage, number",
        run_id=run_id,
        times=",".join(str(time_ms) for time_ms in times_ms),
    )


def late_after(url: str, run_id: str, pipeline: str, span: tuple[int, int]) -> list[LateSecond]:
    """The seconds of a pipeline that end in a span (epoch milliseconds), by stage and time."""
    return query_as(
        LateSecond,
        url,
        "SELECT stage, toUnixTimestamp64Milli(second) AS second_ms, toInt64(sum(v.late)) AS late"
        " FROM tidegauge.results_verdicts AS v"
        f"{_OF_RESTART} GROUP BY stage, second HAVING sum(exact + wrong + v.late) > 0"
        " ORDER BY stage, second",
        **_restart(run_id, pipeline, span),
    )


def duplicates_after(url: str, run_id: str, pipeline: str, span: tuple[int, int]) -> int:
    """Repeated outputs of a pipeline in the seconds that end in a span, epoch milliseconds."""
    rows = query(
        url,
        f"SELECT sum(duplicate) AS total FROM tidegauge.results_verdicts{_OF_RESTART}",
        **_restart(run_id, pipeline, span),
    )
    return int(rows[0]["total"])


def _restart(run_id: str, pipeline: str, span: tuple[int, int]) -> dict[str, str]:
    down, end = map(str, span)
    return {"run_id": run_id, "pipeline": pipeline, "down": down, "end": end}


def latencies(url: str, run_id: str) -> dict[str, dict[str, BySecond]]:
    """Outputs of the measured phase by pipeline, stage and second of output. Raises QueryError if
    there are none, or if some have expired."""
    if expired(url, run_id):
        raise QueryError(f"The latencies of single seconds of run {run_id!r} have expired.")
    rows = query(
        url,
        "SELECT pipeline, stage, intDiv(toUnixTimestamp64Milli(second), 1000) AS at_s,"
        " groupArray(latency_ms) AS latencies_ms, groupArray(l.count) AS counts"
        " FROM tidegauge.results_latency AS l WHERE run_id = {run_id:String}"
        " AND phase = 'measure' AND definition = 'latest'"
        " GROUP BY run_id, pipeline, stage, at_s ORDER BY pipeline, "
        " (SELECT mapFromArrays(groupArray(stage), groupArray(position))"
        " FROM tidegauge.run_stages WHERE run_id = {run_id:String})[toString(stage)], stage, at_s",
        run_id=run_id,
    )
    if not rows:
        raise QueryError(f"There are no latencies of a run {run_id!r}; see: ./tidegauge runs")
    by_pipeline: dict[str, dict[str, BySecond]] = {}
    for row in rows:
        seconds = by_pipeline.setdefault(row["pipeline"], {}).setdefault(row["stage"], {})
        cell = seconds.setdefault(row["at_s"], {})
        for latency_ms, count in zip(row["latencies_ms"], row["counts"], strict=True):
            cell[latency_ms] = cell.get(latency_ms, 0) + count
    return by_pipeline


def latencies_by_input(url: str, run_id: str) -> dict[tuple[str, str], BySecond]:
    """Measured outputs of an interleaved run by pipeline and stage, and by the second in which the
    latest input was appended."""
    rows = query(
        url,
        "SELECT pipeline, stage, at_s, groupArray(latency_ms) AS latencies_ms,"
        " groupArray(outputs) AS counts FROM"
        " (SELECT pipeline, stage, toUInt32(value) AS at_s, latency_ms, sum(s.count) AS outputs"
        " FROM tidegauge.results_slices AS s"
        f" WHERE run_id = {{run_id:String}} AND dimension = '{INPUT_SECOND}'"
        " GROUP BY pipeline, stage, at_s, latency_ms)"
        " GROUP BY pipeline, stage, at_s ORDER BY pipeline, stage, at_s",
        run_id=run_id,
    )
    by_stage: defaultdict[tuple[str, str], BySecond] = defaultdict(dict)
    for row in rows:
        counts = dict(zip(row["latencies_ms"], row["counts"], strict=True))
        by_stage[row["pipeline"], row["stage"]][row["at_s"]] = counts
    return dict(by_stage)


def samples(url: str, run_id: str) -> list[CpuSample]:
    """Resource samples of the pipelines and of the machine."""
    return query_as(
        CpuSample,
        url,
        "SELECT toUnixTimestamp64Milli(r.time) / 1000 AS at_s, interval_s, cpu_seconds, pipeline"
        " FROM tidegauge.results_resources AS r WHERE run_id = {run_id:String}"
        f" AND (pipeline != '' OR service = '{MACHINE}')",
        run_id=run_id,
    )


def input_records(url: str, run_id: str) -> dict[int, int]:
    """Input records that the broker acknowledged, by epoch second."""
    rows = query(
        url,
        "SELECT intDiv(toUnixTimestamp64Milli(second), 1000) AS at_s,"
        " sum(acknowledged) AS records"
        " FROM tidegauge.results_generator WHERE run_id = {run_id:String} GROUP BY at_s",
        run_id=run_id,
    )
    return {row["at_s"]: row["records"] for row in rows}
