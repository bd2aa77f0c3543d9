"""Panels used on several dashboards, with different rows.

about: the panel's title and description. where: SQL condition that selects the rows.
"""

from collections.abc import Iterable, Mapping
from textwrap import indent
from typing import Final

from grafana_foundation_sdk.builders import stat, table, timeseries

from deploy.grafana.program import panels, sql
from deploy.grafana.program.panels import NONE_IS_GOOD, TO_RUN, About, figures, graph, rows

FAILED: Final = tuple(panels.VERDICTS)[1:]
BY_STAGE: Final = "concat(pipeline, ' ', stage)"
INPUT_AND_BY_STAGE: Final = f"if(pipeline = '', 'input', {BY_STAGE})"
PIPELINES: Final = "arrayStringConcat(pipelines, ', ') AS pipelines"
STATE: Final = f"""
multiIf(
        concluded, if(valid, 'valid', 'INVALID'),
        phase != '', concat('in ', toString(phase)),
        {sql.REFUSED}, 'did not take place',
        startsWith(run_id, 'watch-'), 'running',
        'requested'
    ) AS state
""".strip()
STEADINESS: Final = (
    "multiIf(steady IS NULL, 'unknown', steady, 'steady', 'NOT steady') AS steadiness"
)
# The time of a run, for links.
SPAN: Final = """
toUnixTimestamp64Milli(requested_at) AS from_ms,
    toUnixTimestamp64Milli(ifNull(concluded_at, now64(3))) + 5000 AS to_ms
""".strip()
REASONS: Final = "arrayStringConcat(arrayConcat(invalid_reasons, failures), ' ') AS reasons"
PROGRESS_INTERVAL: Final = "5s"  # one line per second and more: a shorter interval would show gaps


def runs(
    about: About, which: str, columns: Iterable[str] = ("workload", PIPELINES, STATE)
) -> table.Panel:
    """Runs, each with a link to its dashboard. which: the rest of the query."""
    chosen = ",\n    ".join(columns)
    return rows(
        about,
        f"""
SELECT
    run_id AS run,
    {chosen},
    requested_at AS requested,
    {SPAN}
FROM runs
{which}
""",
        {"requested": "dateTimeAsIso"},
        links={"run": TO_RUN},
        hidden=("from_ms", "to_ms"),
    )


def failed(about: About, where: str) -> stat.Panel:
    """Outputs that were not exact, by verdict; empty if none were judged."""
    return figures(
        about,
        f"""
SELECT
    {sql.verdict_sums(FAILED)}
FROM results_verdicts AS v
WHERE {where}
HAVING count() > 0
""",
        NONE_IS_GOOD,
    )


def verdicts_over_time(
    about: About, where: str, verdicts: Iterable[str] = tuple(panels.VERDICTS)
) -> timeseries.Panel:
    """These verdicts per second, at the second of the output."""
    return graph(
        about,
        f"""
SELECT
    $__timeInterval(second) AS time,
    {sql.verdict_rates(verdicts)}
FROM results_verdicts AS v
WHERE {where}
GROUP BY time
ORDER BY time
""",
        panels.VERDICTS,
        stacked=True,
        bars=True,
    )


def latency_over_time(
    about: About,
    share: float,
    where: str,
    series: str = BY_STAGE,
    colours: Mapping[str, str] = panels.STAGES,
) -> timeseries.Panel:
    """A percentile of the outputs in each point. series: SQL expression of a line's name."""
    points = _points(share, where, series, source=sql.LATENCIES)
    return graph(about, f"{points}ORDER BY time, series\n", colours, logarithmic=True)


def limited_latency_over_time(
    about: About,
    share: float,
    where: str,
    runs: str,
    *,
    source: str = sql.LATENCIES,
    definition: str = "${definition:sqlstring}",
) -> timeseries.Panel:
    """The same by pipeline and stage, with dashed lines for the upper limits that the thresholds of
    a run set for this percentile and definition, while that run is measured. runs: a query for the
    run ids."""
    points = _points(share, where, BY_STAGE, source=source, cast="toFloat64")
    return graph(
        about,
        f"""
WITH limits AS
{sql.limits(share, runs)}
SELECT time, series, latency_ms
FROM
(
    {indent(points, "    ").strip()}
    UNION ALL
    SELECT
        $__timeInterval(at) AS time,
        limit_name AS series,
        min(limit_ms) AS latency_ms
    FROM {indent(source, "    ").strip()}
    INNER JOIN limits ON of_run = run_id
    WHERE {where}
        AND run_id IN (SELECT of_run FROM limits) AND phase = 'measure'
        AND of_definition = {definition}
        AND of_pipeline IN ('', toString(pipeline)) AND of_stage IN ('*', toString(stage))
    GROUP BY time, series
)
ORDER BY time, startsWith(series, 'limit '), series
""",
        panels.STAGES,
        logarithmic=True,
    )


def _points(share: float, where: str, series: str, *, source: str, cast: str = "") -> str:
    exact = f"{cast}({sql.exact(share)})" if cast else sql.exact(share)
    return f"""
SELECT
    $__timeInterval(at) AS time,
    {series} AS series,
    {exact} AS latency_ms
FROM {source}
WHERE {where}
GROUP BY time, series
"""


def rates(
    about: About,
    where: str,
    series: str = INPUT_AND_BY_STAGE,
    colours: Mapping[str, str] = panels.STAGES | {"input": panels.GREY},
) -> timeseries.Panel:
    """Records appended per second. series: SQL expression of a line's name."""
    return graph(
        about,
        f"""
SELECT
    $__timeInterval(second) AS time,
    {series} AS series,
    sum(records) / $__interval_s AS records_per_second
FROM throughput_by_second
WHERE {where}
GROUP BY time, series
ORDER BY time, series
""",
        colours,
    )


def send_delay(about: About, where: str) -> timeseries.Panel:
    """Send delay of the generator."""
    return graph(
        about,
        f"""
SELECT
    $__timeInterval(second) AS time,
    quantileExactWeighted(0.5)(send_delay_us, count) / 1000 AS p50,
    quantileExactWeighted(0.99)(send_delay_us, count) / 1000 AS p99,
    max(send_delay_us) / 1000 AS max
FROM generator_send_delays
WHERE {where}
GROUP BY time
ORDER BY time
""",
        panels.PERCENTILES,
    )


def age(about: About) -> stat.Panel:
    """Age of the newest result, and of the newest sample of the collector."""
    return figures(
        about,
        f"""
SELECT
    dateDiff('second', max(of_result), now64(3)) AS result,
    dateDiff('second', max(of_sample), now64(3)) AS sample
FROM
(
    SELECT max(l.time) AS of_result, toDateTime64(0, 3) AS of_sample
    FROM results_latency AS l
    WHERE run_id IN (
        SELECT run_id FROM runs
        WHERE NOT {sql.REFUSED}
        ORDER BY ifNull(concluded_at, requested_at) DESC
        LIMIT 20 BY concluded
    )
    UNION ALL
    SELECT toDateTime64(0, 3) AS of_result, max(r.time) AS of_sample FROM results_resources AS r
)
HAVING max(of_result) > toDateTime64(0, 3)
""",
        ((None, panels.GOOD), (900, panels.DOUBTFUL)),
    )


def lag(about: About, where: str) -> timeseries.Panel:
    """Lag of stages in records. where: of `pipeline_progress AS p`."""
    return graph(
        about,
        f"""
SELECT
    $__timeInterval(p.time) AS time,
    {BY_STAGE} AS series,
    max(ifNull(lag_records, max_records_behind)) AS records_behind
FROM pipeline_progress AS p
WHERE {where} AND ifNull(lag_records, max_records_behind) IS NOT NULL
GROUP BY time, series
ORDER BY time, series
""",
        panels.STAGES,
        interval=PROGRESS_INTERVAL,
    )


def rows_read(about: About, where: str) -> timeseries.Panel:
    """Rows read by stages per second. where: of `pipeline_progress AS p`."""
    return graph(
        about,
        f"""
SELECT
    $__timeInterval(p.time) AS time,
    {BY_STAGE} AS series,
    sum(input_rows) / $__interval_s AS rows_per_second
FROM pipeline_progress AS p
WHERE {where}
GROUP BY time, series
ORDER BY time, series
""",
        panels.STAGES,
        interval=PROGRESS_INTERVAL,
    )
