"""History: results of a suite over weeks, and where they changed."""

from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.builders import stat, table, timeseries

from deploy.grafana.program import panels, recurring, sql
from deploy.grafana.program.frame import DEFINITION, asked, frame, placed
from deploy.grafana.program.panels import NONE_IS_GOOD, About, figures, graph, rows

NO_RUNS = (
    "No run of this workload was concluded in this time range. To run a suite indefinitely:"
    " ./tidegauge up default"
)
A_DAY_MS = 86_400_000.0  # lines connect the runs of a series, but not across days without a run
# Search steps are not separate runs.
OF_WORKLOAD = f"load_name = ${{workload:sqlstring}} AND step_of = '' AND {sql.RUNS_OF_RANGE}"
WORKLOADS = f"""
SELECT load_name
FROM runs
WHERE load_name != '' AND step_of = '' AND {sql.RUNS_OF_RANGE}
GROUP BY load_name
ORDER BY countIf(valid) DESC, count() DESC, load_name
LIMIT 200
"""
THESE = """(
    SELECT run_id, ifNull(measure_at, requested_at) AS time, arraySort(pipelines) AS together
    FROM runs
    WHERE load_name = ${workload:sqlstring} AND valid AND step_of = ''
        AND requested_at <= $__toTime AND concluded_at >= $__fromTime
) AS these"""
# A pipeline beside others is another series than alone, as on Overview and for change points.
SERIES = (
    "concat(toString(pipeline), if(length(together) < 2, '', concat(' beside ',"
    " arrayStringConcat(arrayFilter(p -> p != pipeline, together), ', '))))"
)
# Pipelines and stages of the workload's valid runs; a join first, if there is one.
PIPELINES = f"""
SELECT toString(pipeline) AS value
FROM latency_minutes
WHERE phase = 'measure' AND run_id IN (SELECT run_id FROM {THESE})
GROUP BY value
ORDER BY uniq(run_id) DESC, value
"""
STAGES = f"""
SELECT toString(stage) AS value
FROM latency_minutes
WHERE phase = 'measure' AND {sql.CHOSEN_PIPELINES} AND run_id IN (SELECT run_id FROM {THESE})
GROUP BY value
ORDER BY
    value NOT IN (SELECT stage FROM run_stages WHERE kind IN ('join', 'window_join')),
    {sql.stage_order("value")}
"""
CHOSEN = f"phase = 'measure' AND {sql.CHOSEN_PIPELINES} AND run_id IN (SELECT run_id FROM {THESE})"


def build() -> dash.Dashboard:
    """The dashboard."""
    result = frame(
        "history",
        "History",
        "Results of a workload over weeks: latency, cost and correctness of each run, and change "
        "points.",
        (
            asked("workload", "Workload", "Workload and rate to show", WORKLOADS, several=False),
            asked("pipelines", "Pipelines", "Pipelines to show", PIPELINES, several=True),
            asked("stage", "Stage", "Stage whose latency is shown", STAGES, several=False),
            DEFINITION,
        ),
        since="now-30d",
        refresh="5m",
    )
    return placed(
        result,
        _counts(),
        _changes(),
        *(
            panel.insert_nulls(A_DAY_MS).span_nulls(A_DAY_MS)
            for panel in (
                _latency(0.5),
                _latency(0.99),
                _failed(),
                _cost(),
                _send_delay(),
                _input(),
            )
        ),
        _thresholds(),
        _runs(),
    )


def _counts() -> stat.Panel:
    return figures(
        About(
            "Number of runs",
            "Runs of this workload in this time range: valid, invalid, and not concluded.",
            "short",
            width=8,
            empty=NO_RUNS,
        ),
        f"""
SELECT
    countIf(k.valid) AS valid,
    countIf(k.concluded AND NOT k.valid) AS invalid,
    countIf(NOT k.concluded) AS "not concluded"
FROM runs AS k
WHERE {OF_WORKLOAD}
HAVING count() > 0
""",
        ((None, panels.BLUE),),
    )


def _changes() -> table.Panel:
    return rows(
        About(
            "Change points",
            "First runs after a figure changed by more than noise, with its median before and "
            "after, and what else changed at that run. Latencies are adjusted for the pace of the "
            "machine; middle_ms is the mean of the middle half.",
            "string",
            width=16,
            empty="No change point was found in this time range.",
        ),
        """
SELECT
    run_id AS "first run",
    JSONExtractString(detail, 'workload') AS workload,
    JSONExtractString(detail, 'pipeline') AS pipeline,
    JSONExtractString(detail, 'stage') AS stage,
    JSONExtractString(detail, 'metric') AS metric,
    JSONExtract(detail, 'before', 'median', 'Nullable(Float64)') AS before,
    JSONExtract(detail, 'after', 'median', 'Nullable(Float64)') AS after,
    if(JSONExtractBool(detail, 'worse'), 'worse', 'better') AS "change",
    arrayStringConcat(JSONExtract(detail, 'likely_causes', 'Array(String)'), ' ') AS causes,
    c.time AS found
FROM results_conclusions AS c
WHERE kind = 'change_point' AND $__timeFilter(c.time)
ORDER BY c.time DESC
LIMIT 200
""",
        {"found": "dateTimeAsIso", "before": "short", "after": "short"},
    )


def _latency(share: float) -> timeseries.Panel:
    return graph(
        About(
            f"Latency p{share * 100:g} of $stage, by run",
            "Exact percentile of the measured phase of every valid run, at the time of the run. A "
            "pipeline that was measured beside others has a line of its own. Dashed lines are the "
            "limits that the thresholds of each run set for this percentile, stage and definition.",
            "ms",
            empty=NO_RUNS,
        ),
        f"""
SELECT time, point.1 AS series, point.2 AS latency_ms
FROM
(
    SELECT
        time,
        name,
        toFloat64(any(ms)) AS value,
        minOrNullIf(
            limit_ms,
            of_definition = ${{definition:sqlstring}} AND of_pipeline IN ('', measured)
                AND of_stage IN ('*', ${{stage:sqlstring}})
        ) AS least
    FROM
    (
        SELECT
            m.run_id AS run,
            time,
            toString(pipeline) AS measured,
            {SERIES} AS name,
            {sql.exact(share)} AS ms
        FROM latency_minutes AS m
        INNER JOIN {THESE} ON these.run_id = m.run_id
        WHERE definition = ${{definition:sqlstring}} AND stage = ${{stage:sqlstring}} AND {CHOSEN}
        GROUP BY run, time, measured, name
    ) AS f
    LEFT JOIN {sql.limits(share, f"SELECT run_id FROM {THESE}")} AS l ON of_run = run
    GROUP BY run, time, name
)
ARRAY JOIN [(name, toNullable(value)), (concat('limit ', name), least)] AS point
WHERE point.2 IS NOT NULL
ORDER BY time, startsWith(series, 'limit '), series
LIMIT 20000
""",
        {},
    )


def _failed() -> timeseries.Panel:
    return graph(
        About(
            "Outputs that were not exact, by run",
            "Verdicts of the measured phase other than exact, all stages together.",
            "short",
            empty=NO_RUNS,
        ),
        f"""
SELECT
    time,
    {SERIES} AS series,
    sum(wrong + missing + late + duplicate + unexpected) AS outputs
FROM results_verdicts AS v
INNER JOIN {THESE} ON these.run_id = v.run_id
WHERE {CHOSEN}
GROUP BY these.time AS time, series
ORDER BY time, series
LIMIT 20000
""",
        {},
    )


def _cost() -> timeseries.Panel:
    return graph(
        About(
            "Core-seconds per million input records, by run",
            "CPU time of the processes of a pipeline over the whole run, divided by its input. "
            "Runs that measured pipelines alternately are not shown.",
            "none",
            empty=NO_RUNS,
        ),
        f"""
SELECT
    these.time AS time,
    {SERIES} AS series,
    any(u.cpu_seconds) / any(i.records) * 1000000 AS core_seconds
FROM
(
    SELECT run_id, pipeline, sum(r.cpu_seconds) AS cpu_seconds
    FROM results_resources AS r
    WHERE pipeline != '' AND {sql.CHOSEN_PIPELINES} AND run_id IN (SELECT run_id FROM {THESE})
        AND run_id NOT IN {sql.INTERLEAVED}
    GROUP BY run_id, pipeline
) AS u
INNER JOIN
(
    SELECT run_id, sum(t.records) AS records
    FROM results_throughput AS t
    WHERE pipeline = '' AND run_id IN (SELECT run_id FROM {THESE})
    GROUP BY run_id
    HAVING records > 0
) AS i ON i.run_id = u.run_id
INNER JOIN {THESE} ON these.run_id = u.run_id
GROUP BY time, series
ORDER BY time, series
LIMIT 20000
""",
        {},
    )


def _send_delay() -> timeseries.Panel:
    return graph(
        About(
            "Send delay of the generator, by run",
            "Send delay in the measured phase. If it grows, the machine has changed.",
            "ms",
            empty=NO_RUNS,
        ),
        f"""
SELECT
    these.time AS time,
    any(send_delay_p50_ms) AS p50,
    any(send_delay_p99_ms) AS p99,
    any(send_delay_max_ms) AS max
FROM generator_summary AS g
INNER JOIN {THESE} ON these.run_id = g.run_id
WHERE phase = 'measure' AND run_id IN (SELECT run_id FROM {THESE})
GROUP BY time
ORDER BY time
LIMIT 20000
""",
        panels.PERCENTILES,
    )


def _input() -> timeseries.Panel:
    return graph(
        About(
            "Input rate, by run",
            "Records per second that the generator sent in the measured phase.",
            "recps",
            empty=NO_RUNS,
        ),
        f"""
SELECT these.time AS time, sum(g.sent) / greatest(uniq(g.second), 1) AS "input"
FROM results_generator AS g
INNER JOIN {THESE} ON these.run_id = g.run_id
WHERE phase = 'measure' AND run_id IN (SELECT run_id FROM {THESE})
GROUP BY time
ORDER BY time
LIMIT 20000
""",
        {"input": panels.GREY},
    )


def _thresholds() -> table.Panel:
    return rows(
        About(
            "Thresholds",
            "Each threshold of the runs, also of those that it ended: in how many it failed, and "
            "the figure and the limit of the newest run.",
            "short",
            width=24,
            height=7,
            empty="No run of this workload in this time range has thresholds.",
        ),
        f"""
SELECT
    if(
        match(threshold, '[*] baseline'),
        concat(
            extract(threshold, '^[^<>=!]*[<>=!]+'), ' ',
            extract(threshold, '[0-9.]+ [*] baseline')
        ),
        trimBoth(extract(threshold, '^([^#]*)'))
    ) AS limited,
    pipeline,
    stage,
    count() AS runs,
    countIf(NOT passed) AS failed,
    argMax(tuple(value), t.time).1 AS "newest value",
    argMax(threshold_limit, t.time) AS "newest limit",
    max(t.time) AS "newest run"
FROM threshold_results AS t
WHERE run_id IN (SELECT run_id FROM runs WHERE {OF_WORKLOAD})
GROUP BY limited, pipeline, stage
ORDER BY failed > 0 DESC, "newest run" DESC, limited, pipeline, stage
LIMIT 200
""",
        {"newest run": "dateTimeAsIso"},
        judged={"failed": NONE_IS_GOOD},
    )


def _runs() -> table.Panel:
    return recurring.runs(
        About(
            "Runs of this workload",
            "Newest first. Click a run for details.",
            "string",
            width=24,
            empty=NO_RUNS,
        ),
        f"WHERE {OF_WORKLOAD}\nORDER BY requested_at DESC\nLIMIT 500",
        (recurring.PIPELINES, recurring.STATE, recurring.REASONS),
    )
