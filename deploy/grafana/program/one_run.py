"""Run: everything about one run. Links from lists of runs set its time range."""

from grafana_foundation_sdk.builders import barchart, heatmap, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.models import dashboard as model

from deploy.grafana.program import panels, recurring, sql
from deploy.grafana.program.frame import DEFINITION, asked, faults, frame, phases, placed
from deploy.grafana.program.panels import (
    NONE_IS_GOOD,
    TO_RUN,
    About,
    bars,
    figures,
    heat_over_time,
    rows,
)

# Samples between runs have an empty run id, and so has a time range without runs.
THIS_RUN = "run_id = ${run:sqlstring} AND run_id != ''"
RUNS = f"""
SELECT run_id
FROM runs
WHERE {sql.RUNS_OF_RANGE} AND NOT {sql.REFUSED}
ORDER BY step_of != '', requested_at DESC
LIMIT 500
"""
LATENCY = f"{THIS_RUN} AND definition = ${{definition:sqlstring}}"
# Counts per second, or per minute once those of the run have expired.
COUNTED = f"""
(
    SELECT run_id, pipeline, stage, definition, phase, second AS at, latency_ms, count
    FROM results_latency
    WHERE {LATENCY} AND $__timeFilter(second)
    UNION ALL
    SELECT run_id, pipeline, stage, definition, phase, minute AS at, latency_ms, count
    FROM latency_minutes
    WHERE {LATENCY} AND minute >= toStartOfMinute($__fromTime) AND minute <= $__toTime
        AND run_id NOT IN (SELECT run_id FROM results_latency WHERE {THIS_RUN} LIMIT 1)
) AS counted
""".strip()
TO_ITS_TIME = "/d/tidegauge-run?${run:queryparam}&from=${begin}&to=${end}&${datasource:queryparam}"
EXPIRED = "or its reports have expired (TIDEGAUGE_KEEP_PROGRESS_DAYS)."
NOT_YET = "Nothing measured yet. Select another run, or a time range that contains this one."


def used() -> table.Panel:
    """What each service and pipeline used."""
    return rows(
        About(
            "Resources used",
            "Mean cores, maximum memory and Java heap, and garbage collection time of each service "
            "and pipeline over the whole run.",
            "string",
            height=8,
            empty="The collector took no samples of this run.",
        ),
        f"""
SELECT
    if(pipeline = '', toString(service), toString(pipeline)) AS component,
    mean_cpu_cores AS cores,
    max_memory_bytes AS memory,
    max_heap_used_bytes AS heap,
    gc_seconds AS "GC time"
FROM resources_summary
WHERE {THIS_RUN}
ORDER BY cores DESC
LIMIT 100
""",
        {"cores": "short", "memory": "bytes", "heap": "bytes", "GC time": "s"},
    )


def whose() -> table.Panel:
    """The causes of late seconds."""
    return rows(
        About(
            "Causes of late seconds",
            "Seconds with latency well above the run's own level, and whether the generator, the "
            "broker, the evaluator or the machine caused it, not the pipeline.",
            "string",
            height=5,
            empty="The run is not concluded.",
        ),
        f"""
SELECT
    multiIf(disturbed IS NULL, 'unknown', disturbed, 'disturbed', 'undisturbed') AS verdict,
    late_seconds AS "late seconds",
    seconds AS "of seconds",
    said AS explanation
FROM run_attribution
WHERE {THIS_RUN}
""",
        {"late seconds": "short", "of seconds": "short"},
    )


def room() -> table.Panel:
    """Cores used, and waits for cores."""
    return rows(
        About(
            "CPU use and waiting",
            "Cores used by each part in the measured phase, and the share of its runnable time "
            "that it waited for a core.",
            "string",
            height=9,
            empty="The run is not concluded.",
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


def events() -> table.Panel:
    """The events of the run."""
    return rows(
        About(
            "Events",
            "Events of the run in order, without the periodic reports of the evaluator.",
            "string",
            height=9,
            empty="There is no run in this time range.",
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


def environment() -> table.Panel:
    """Versions and machine."""
    return rows(
        About(
            "Environment",
            "Versions and machine, as recorded when the run was requested.",
            "string",
            height=9,
            empty="There is no run in this time range.",
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


def _time(name: str, column: str) -> dash.QueryVariable:
    """A variable that is not shown: when the run begins or ends."""
    time_ms = f"SELECT {column} FROM (SELECT {recurring.SPAN} FROM runs WHERE {THIS_RUN})"
    hidden = asked(name, f"The {name} of the run", "Epoch milliseconds", time_ms, several=False)
    return hidden.hide(model.VariableHide.HIDE_VARIABLE)


def build() -> dash.Dashboard:
    """The dashboard. The viewer shows the time of the run unless the address has another one;
    Grafana, which cannot, the last hours and a link to that time."""
    result = frame(
        "run",
        "Run",
        "One run: request, validity, latencies, ledger, load and resources.",
        (
            asked(
                "run",
                "Run",
                "Run to show, newest first, steps of searches last",
                RUNS,
                several=False,
            ),
            DEFINITION,
            _time("begin", "from_ms"),
            _time("end", "to_ms"),
        ),
        since="now-6h",
        refresh="30s",
        tags=["own-time"],
        events=(phases(THIS_RUN), faults(THIS_RUN)),
    ).link(
        dash.DashboardLink("Time of the run")
        .type(model.DashboardLinkType.LINK)
        .url(TO_ITS_TIME)
        .tooltip("From the request of the run to its end")
    )
    return placed(
        result,
        _about_it(),
        _offences(),
        _moved(),
        _summary(),
        _cost(),
        _thresholds(),
        _over_time(0.5),
        _over_time(0.99),
        _heat(),
        _rates(),
        _send_delay(),
        _behind(),
        _read(),
        _verdicts(),
        used(),
        whose(),
        room(),
        events(),
        environment(),
        _others(),
    )


def _about_it() -> table.Panel:
    return rows(
        About(
            "The run",
            "The request, whether the run is valid, and the reasons if it is not. Click the run to "
            "show the time that it took.",
            "string",
            width=12,
            height=5,
            empty="There is no run in this time range.",
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
    dateDiff('second', measure_at, cool_down_at) AS "measured for",
    {recurring.SPAN}
FROM runs
WHERE {THIS_RUN}
""",
        {"measured from": "dateTimeAsIso", "measured for": "s", "warm-up": "s"},
        links={"run": TO_RUN},
        hidden=("from_ms", "to_ms"),
    )


def _offences() -> stat.Panel:
    return recurring.failed(
        About(
            "Outputs that were not exact",
            "Verdicts of the measured phase, all pipelines and stages together.",
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
            "Unsteady figures",
            "Number of medians, 95th percentiles and CPU times per record that have a trend and "
            "differ between the first and the last third of the measured phase, and of JIT "
            "compilers that still use a fifth of a pipeline's CPU time. If it is not 0, the run "
            "is not steady.",
            "short",
            width=5,
            height=5,
            empty="It is unknown whether this run was steady.",
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
            "Exact percentiles of the measured phase, and the number of exact and other outputs.",
            "ms",
            width=16,
            height=9,
            empty=NOT_YET,
        ),
        f"""
SELECT
    l.pipeline AS pipeline, l.stage AS stage, outputs, {sql.ALL_NAMES}, exact, failed
FROM
(
    SELECT
        pipeline, stage, sum(m.count) AS outputs,
        {sql.ALL_PERCENTILES}
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
            "Latency added by each stage",
            "Median latency of each stage minus that of its nearest measured upstream stage, in "
            "chained pipelines. For the first stage, its whole latency.",
            "ms",
            width=8,
            height=9,
            empty="No pipeline of this run is chained (topology chained or via-topics).",
        ),
        f"""
SELECT pipeline, stage, toInt64(ifNull(p50_cost_ms, p50_ms)) AS cost
FROM stage_cost
WHERE {LATENCY} AND phase = 'measure'
    AND pipeline IN (SELECT pipeline FROM stage_chains WHERE {THIS_RUN})
ORDER BY pipeline, {sql.stage_order()}
""",
        panels.STAGES,
        "pipeline",
        pivoted=("pipeline", "stage", "cost"),
    )


def _thresholds() -> table.Panel:
    return rows(
        About(
            "Thresholds",
            "Each threshold of the run, and the figure that it limits.",
            "short",
            width=24,
            height=4,
            empty="The run has no thresholds, or it is not concluded.",
        ),
        f"""
SELECT
    threshold,
    pipeline,
    stage,
    value,
    threshold_limit AS "limit",
    if(passed, 'passed', 'FAILED') AS result
FROM threshold_results
WHERE {THIS_RUN}
ORDER BY passed, threshold, pipeline, stage
LIMIT 200
""",
    )


def _over_time(share: float) -> timeseries.Panel:
    name = f"p{share * 100:g}"
    return recurring.limited_latency_over_time(
        About(
            f"Latency {name} by stage over time",
            "Exact percentile of the outputs in each interval, all phases. Dashed lines are the "
            "limits that the thresholds of the run set for this percentile and definition, while "
            "it was measured. Logarithmic axis. Points are minutes after the counts per second "
            "have expired.",
            "ms",
            empty=NOT_YET,
        ),
        share,
        THIS_RUN,
        "${run:sqlstring}",
        source=COUNTED,
    )


def _heat() -> heatmap.Panel:
    return heat_over_time(
        About(
            "Latency heatmap",
            "Number of outputs by latency, all pipelines and stages together.",
            "short",
            width=24,
            empty=NOT_YET,
        ),
        f"""
SELECT
    $__timeInterval(at) AS time,
    {sql.band_columns()}
FROM {COUNTED}
GROUP BY time
ORDER BY time
""",
    )


def _rates() -> timeseries.Panel:
    return recurring.rates(
        About(
            "Input and output rate",
            "Records per second of LogAppendTime, counted from the topics.",
            "recps",
            empty=NOT_YET,
        ),
        f"{THIS_RUN} AND $__timeFilter(second)",
    )


def _send_delay() -> timeseries.Panel:
    return recurring.send_delay(
        About(
            "Send delay of the generator",
            "Delay between the scheduled and the actual send time of a record.",
            "ms",
            empty=NOT_YET,
        ),
        f"{THIS_RUN} AND $__timeFilter(second)",
    )


def _behind() -> timeseries.Panel:
    return recurring.lag(
        About(
            "Pipeline lag",
            "Input records that a stage has not read yet, as reported by the pipeline.",
            "short",
            empty=f"No pipeline of this run reported its lag, {EXPIRED}",
        ),
        f"{THIS_RUN} AND $__timeFilter(p.time)",
    )


def _read() -> timeseries.Panel:
    return recurring.rows_read(
        About(
            "Read rate of the pipelines",
            "Rows per second read by each stage, as reported by the pipeline.",
            "recps",
            empty=f"No pipeline of this run reported progress, {EXPIRED}",
        ),
        f"{THIS_RUN} AND $__timeFilter(p.time)",
    )


def _verdicts() -> timeseries.Panel:
    return recurring.verdicts_over_time(
        About(
            "Verdicts over time",
            "Verdicts per second, by output time. Missing outputs count at the time of their "
            "latest input.",
            "cps",
            empty=NOT_YET,
        ),
        f"{THIS_RUN} AND $__timeFilter(second)",
    )


def _others() -> table.Panel:
    return recurring.runs(
        About(
            "All runs in this time range",
            "Newest first. Click a run for details.",
            "string",
            width=24,
            height=8,
            empty="There is no run in this time range.",
        ),
        f"WHERE {sql.RUNS_OF_RANGE}\nORDER BY requested_at DESC\nLIMIT 200",
    )
