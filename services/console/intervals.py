"""Intervals of the latencies of one run, from the counts of every second."""

from typing import Any

from analysis.intervals import LEVELS, QUARTILES, Seconds, intervals
from services.runtime.clickhouse import query

# In longer runs, several seconds are combined.
MOST_BLOCKS = 3_600
_OF_RUN = "run_id = {run_id:String} AND phase = 'measure'"
_CELL = "pipeline, stage, definition"
_LEVELS = ", ".join(str(level) for level in (*QUARTILES, *LEVELS.values()))
_BELOW = ", ".join(
    f"sumIf(l.count, latency_ms <= q.places[{place}]) AS {figure}"
    for place, figure in enumerate(LEVELS, 3)
)
_SERIES = ", ".join(f"groupArray({figure}) AS below_{figure}" for figure in LEVELS)
SECONDS = f"""
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
OUTPUTS = f"""
SELECT {_CELL}, groupArray(latency_ms) AS latencies_ms, groupArray(outputs) AS outputs
FROM
(
    SELECT {_CELL}, latency_ms, sum(m.count) AS outputs
    FROM tidegauge.latency_minutes AS m WHERE {_OF_RUN}
    GROUP BY {_CELL}, latency_ms
)
GROUP BY {_CELL}
"""
Intervals = dict[tuple[str, str, str], Any]


def read_intervals(url: str, run_id: str, measured_s: float) -> Intervals:
    """The key `intervals` of a report by pipeline, stage and definition: bounds by figure, None if
    there is too little data. Raises QueryError."""
    span_s = max(1, -(-int(measured_s) // MOST_BLOCKS))
    outputs = {
        _cell(row): dict(zip(row["latencies_ms"], row["outputs"], strict=True))
        for row in query(url, OUTPUTS, run_id=run_id)
    }
    found: Intervals = {}
    for row in query(url, SECONDS, run_id=run_id, span_s=str(span_s)):
        below = {figure: row[f"below_{figure}"] for figure in LEVELS}
        seconds = Seconds(row["counts"], row["sums"], row["held"], below)
        told = intervals(seconds, outputs[_cell(row)])
        found[_cell(row)] = told and {
            figure: None if bounds is None else list(bounds) for figure, bounds in told.items()
        }
    return found


def _cell(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["pipeline"], row["stage"], row["definition"]
