"""Run: everything about one run. Links from lists of runs set its time range."""

from grafana_foundation_sdk.builders import barchart, heatmap, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as dash

from deploy.grafana.program import palette, recurring, sql
from deploy.grafana.program.frame import DEFINITION, asked, frame, placed
from deploy.grafana.program.panels import (
    NONE_IS_GOOD,
    About,
    bars,
    figures,
    graph,
    heat_over_time,
    rows,
)

RUNS = f"""
SELECT run_id
FROM runs
WHERE {sql.RUNS_OF_RANGE}
ORDER BY requested_at DESC
LIMIT 500
"""
# Samples between runs have an empty run id, and so has a time range without runs.
THIS_RUN = "run_id = ${run:sqlstring} AND run_id != ''"
LATENCY = f"{THIS_RUN} AND definition = ${{definition:sqlstring}}"
NOT_YET = "This run has measured nothing yet. Choose another, or a range of time it lies in."


def build() -> dash.Dashboard:
    """The dashboard."""
    found = frame(
        "run",
        "Run",
        "One run: what was asked for, whether it may be used, its latencies, ledger, load and use.",
        (asked("run", "Run", "Run to show, newest first", RUNS, several=False), DEFINITION),
        since="now-6h",
        refresh="30s",
    )
    return placed(
        found,
        _about_it(),
        _offences(),
        _moved(),
        _summary(),
        _cost(),
        _over_time(0.5),
        _over_time(0.99),
        _heat(),
        _rates(),
        _send_delay(),
        _behind(),
        _read(),
        _verdicts(),
        _used(),
        _whose(),
        _room(),
        _events(),
        _environment(),
        _others(),
    )


def _about_it() -> table.Panel:
    return rows(
        About(
            "The run",
            "What was asked for and whether the result may be used; if not, why.",
            "string",
            width=12,
            height=5,
            empty="There is no run in this range of time.",
        ),
        f"""
SELECT
    run_id AS run,
    workload,
    {recurring.PIPELINES},
    {recurring.STATE},
    {recurring.STEADINESS},
    arrayStringConcat(moving, '; ') AS moving,
    {recurring.REASONS},
    warm_up_s AS "warm-up",
    measure_at AS "measured from",
    dateDiff('second', measure_at, cool_down_at) AS "for"
FROM runs
WHERE {THIS_RUN}
""",
        {"measured from": "dateTimeAsIso", "for": "s", "warm-up": "s"},
    )


def _offences() -> stat.Panel:
    return recurring.failed(
        About(
            "Outputs that were not exact",
            "Verdicts of the measure phase, all pipelines and stages together.",
            "short",
            width=7,
            height=5,
            empty=NOT_YET,
        ),
        f"{THIS_RUN} AND phase = 'measure'",
    )


def _moved() -> stat.Panel:
    return figures(
        About(
            "Figures that still moved",
            "Medians, 95th percentiles and processor time per record that differ between the first "
            "and the last third of the measured phase and have a trend, and compilers that still "
            "take a fifth of a pipeline's time. With any the run is not steady.",
            "short",
            width=5,
            height=5,
            empty="It is not known whether this run was steady.",
        ),
        f"""
SELECT length(moving) AS figures FROM runs WHERE {THIS_RUN} AND steady IS NOT NULL
""",
        NONE_IS_GOOD,
    )


def _summary() -> table.Panel:
    return rows(
        About(
            "Latency and ledger by stage",
            "Exact percentiles of the measure phase, and how many outputs were exact and not.",
            "ms",
            width=16,
            height=9,
            empty=NOT_YET,
        ),
        f"""
SELECT l.pipeline AS pipeline, l.stage AS stage, outputs, p50, p90, p99, "p99.9", max, exact, failed
FROM
(
    SELECT pipeline, stage, sum(m.count) AS outputs, {sql.PERCENTILES}
    FROM latency_minutes AS m
    WHERE {LATENCY} AND phase = 'measure'
    GROUP BY pipeline, stage
) AS l
LEFT JOIN
(
    SELECT
        pipeline,
        stage,
        sum(r.exact) AS exact,
        sum(r.wrong + r.missing + r.late + r.duplicate + r.unexpected) AS failed
    FROM results_verdicts AS r
    WHERE {THIS_RUN} AND phase = 'measure'
    GROUP BY pipeline, stage
) AS v ON v.pipeline = l.pipeline AND v.stage = l.stage
ORDER BY pipeline, {sql.stage_order("l.stage")}
LIMIT 100
""",
        {
            "pipeline": "string",
            "stage": "string",
            "outputs": "short",
            "exact": "short",
            "failed": "short",
        },
        judged={"failed": NONE_IS_GOOD},
    )


def _cost() -> barchart.Panel:
    return bars(
        About(
            "Cost of each stage",
            "Median latency of each stage less that of the nearest measured stage that it is made "
            "of, in pipelines that compute stages from stages; of the first, all of it.",
            "ms",
            width=8,
            height=9,
            empty="No pipeline computed a stage from a stage (topology chained, via-topics).",
        ),
        f"""
SELECT pipeline, stage, toInt64(ifNull(p50_cost_ms, p50_ms)) AS cost
FROM stage_cost
WHERE {LATENCY} AND phase = 'measure'
    AND pipeline IN (SELECT pipeline FROM stage_chains WHERE {THIS_RUN})
ORDER BY pipeline, {sql.stage_order()}
""",
        palette.STAGES,
        "pipeline",
        pivoted=("pipeline", "stage", "cost"),
    )


def _over_time(share: float) -> timeseries.Panel:
    name = f"p{share * 100:g}"
    return graph(
        About(
            f"Latency {name} by stage over time",
            "Exact percentile of every point's own outputs, of all phases; dashed, what a "
            "threshold of the run allows. A logarithmic axis.",
            "ms",
            empty=NOT_YET,
        ),
        f"""
WITH points AS
(
    SELECT
        $__timeInterval(second) AS time,
        {recurring.BY_STAGE} AS series,
        {sql.exact(share)} AS latency_ms
    FROM results_latency
    WHERE {LATENCY} AND $__timeFilter(second)
    GROUP BY time, series
)
SELECT time, series, latency_ms
FROM
(
    SELECT time, series, toFloat64(latency_ms) AS latency_ms FROM points
    UNION ALL
    SELECT time, series, latency_ms
    FROM (SELECT DISTINCT time FROM points) AS moments
    CROSS JOIN
    (
        SELECT concat('limit ', pipeline, ' ', stage) AS series, min(threshold_limit) AS latency_ms
        FROM threshold_results
        WHERE {THIS_RUN} AND position(threshold, '.{name}_ms') > 0
        GROUP BY series
    ) AS limits
)
ORDER BY time, series
""",
        palette.STAGES,
        logarithmic=True,
    )


def _heat() -> heatmap.Panel:
    return heat_over_time(
        About(
            "Every latency of the run",
            "How many outputs of all its pipelines and stages took how long.",
            "short",
            width=24,
            empty=NOT_YET,
        ),
        f"""
SELECT
    $__timeInterval(second) AS time,
    {sql.band_columns()}
FROM results_latency
WHERE {LATENCY} AND $__timeFilter(second)
GROUP BY time
ORDER BY time
""",
    )


def _rates() -> timeseries.Panel:
    return recurring.rates(
        About(
            "Input and output rate",
            "Records per second by the time at which the broker appended them.",
            "recps",
            empty=NOT_YET,
        ),
        f"{THIS_RUN} AND $__timeFilter(second)",
    )


def _send_delay() -> timeseries.Panel:
    return recurring.send_delay(
        About(
            "How late the generator sent",
            "Send delay: from when the load shape wanted a record sent to when it was.",
            "ms",
            empty=NOT_YET,
        ),
        f"{THIS_RUN} AND $__timeFilter(second)",
    )


def _behind() -> timeseries.Panel:
    return recurring.lag(
        About(
            "How far behind the pipelines read",
            "Records of its inputs that a stage had not read yet, as the pipeline says.",
            "short",
            empty="No pipeline of this run said how far it is behind.",
        ),
        f"{THIS_RUN} AND $__timeFilter(p.time)",
    )


def _read() -> timeseries.Panel:
    return recurring.rows_read(
        About(
            "What the pipelines read",
            "Rows per second that each stage had, as the pipeline says while it runs.",
            "recps",
            empty="No pipeline of this run reported progress.",
        ),
        f"{THIS_RUN} AND $__timeFilter(p.time)",
    )


def _verdicts() -> timeseries.Panel:
    return recurring.verdicts_over_time(
        About(
            "Verdicts over time",
            "Verdicts per second, at the second of the output; a missing one at that of its latest "
            "input.",
            "cps",
            empty=NOT_YET,
        ),
        f"{THIS_RUN} AND $__timeFilter(second)",
    )


def _used() -> table.Panel:
    return rows(
        About(
            "What the run used",
            "Per service, over all of the run: mean cores, most memory and Java heap, time in "
            "garbage collection.",
            "string",
            height=8,
            empty="The collector sampled nothing of this run.",
        ),
        f"""
SELECT
    if(pipeline = '', toString(service), toString(pipeline)) AS who,
    mean_cpu_cores AS cores,
    max_memory_bytes AS memory,
    max_heap_used_bytes AS heap,
    gc_seconds AS "in collection"
FROM resources_summary
WHERE {THIS_RUN}
ORDER BY cores DESC
LIMIT 100
""",
        {"cores": "short", "memory": "bytes", "heap": "bytes", "in collection": "s"},
    )


def _whose() -> table.Panel:
    return rows(
        About(
            "Whose the late seconds are",
            "Seconds well above the run's own level, and whether the generator, the broker, the "
            "evaluator or the machine made them late, not the pipeline.",
            "string",
            height=5,
            empty="The run is not concluded, or was before runs said this.",
        ),
        f"""
SELECT
    multiIf(disturbed IS NULL, 'not known', disturbed, 'disturbed', 'undisturbed') AS verdict,
    late_seconds AS late,
    seconds AS "of seconds",
    said AS "in words"
FROM run_attribution
WHERE {THIS_RUN}
""",
        {"late": "short", "of seconds": "short"},
    )


def _room() -> table.Panel:
    return rows(
        About(
            "Room",
            "Cores that each part used in the measured phase, and the share of the time in which "
            "it wanted to run that it waited for a core.",
            "string",
            height=9,
            empty="The run is not concluded, or was before runs said this.",
        ),
        f"""
SELECT part, cpu_cores AS cores, cpu_share AS "of the machine", waiting_share AS waiting
FROM run_room
WHERE {THIS_RUN}
ORDER BY part = 'machine', cores DESC
LIMIT 100
""",
        {"cores": "short", "of the machine": "percentunit", "waiting": "percentunit"},
    )


def _events() -> table.Panel:
    return rows(
        About(
            "What happened",
            "Events of the run in order, without the regular reports of the evaluator.",
            "string",
            height=9,
            empty="There is no run in this range of time.",
        ),
        f"""
SELECT e.time AS time, producer, event, phase, substring(detail, 1, 200) AS detail
FROM results_lifecycle AS e
WHERE {THIS_RUN} AND event NOT IN ('evaluating', 'run_requested', 'watch_begun', 'preparing')
ORDER BY e.time, _offset
LIMIT 500
""",
        {"time": "dateTimeAsIso"},
    )


def _environment() -> table.Panel:
    return rows(
        About(
            "What it ran on",
            "Versions and machine, as recorded when the run was asked for.",
            "string",
            height=9,
            empty="There is no run in this range of time.",
        ),
        f"""
SELECT
    entry.1 AS part,
    if(startsWith(entry.2, '"'), JSONExtractString(concat('[', entry.2, ']'), 1), entry.2) AS value
FROM results_lifecycle
ARRAY JOIN JSONExtractKeysAndValuesRaw(detail, 'environment') AS entry
WHERE {THIS_RUN} AND event IN ('run_requested', 'watch_begun')
LIMIT 50
""",
    )


def _others() -> table.Panel:
    return recurring.runs(
        About(
            "All runs in this range of time",
            "Newest first. Click one to see it.",
            "string",
            width=24,
            height=8,
            empty="There is no run in this range of time.",
        ),
        f"WHERE {sql.RUNS_OF_RANGE}\nORDER BY requested_at DESC\nLIMIT 200",
    )
