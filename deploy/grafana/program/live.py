"""Live: is it healthy now?"""

from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.builders import stat, table, timeseries

from deploy.grafana.program import panels, recurring, sql
from deploy.grafana.program.frame import DEFINITION, WATCHED, asked, frame, placed
from deploy.grafana.program.panels import About, graph, rows

RUNS = """
SELECT run_id FROM latency_minutes
WHERE minute >= toStartOfMinute($__fromTime) AND minute <= $__toTime
""".strip().replace("\n", " ")
RATIO = ((None, panels.GOOD), (1.2, panels.DOUBTFUL), (1.5, panels.BAD))


def build() -> dash.Dashboard:
    """The dashboard."""
    result = frame(
        "live",
        "Live",
        "Current state of the pipelines: latency, rates, correctness, and the newest runs.",
        (
            asked("pipelines", "Pipelines", "Pipelines to show", sql.PIPELINE_VALUES, several=True),
            DEFINITION,
        ),
    )
    return placed(
        result,
        _runs(),
        _ledger(),
        _freshness(),
        _last_seconds(),
        _baseline(),
        _latency(0.5),
        _latency(0.99),
        _rates(),
        _send_delay(),
        _evaluator_lag(),
        _behind(),
        _read(),
    )


def _runs() -> table.Panel:
    return recurring.runs(
        About(
            "Current and recent runs",
            "The five newest runs, with their phase or result. Click a run for details.",
            "string",
            width=12,
            height=6,
            empty="No runs yet. Start one: ./tidegauge run",
        ),
        "ORDER BY requested_at DESC\nLIMIT 5",
    )


def _ledger() -> stat.Panel:
    return recurring.failed(
        About(
            "Outputs that were not exact",
            "Verdicts on all outputs of the selected pipelines in this time range. Any value other "
            "than 0 means that the outputs differ from the expected outputs. Runs that kill a part "
            "and calibration pipelines that plant faults are not counted.",
            "short",
            width=8,
            height=6,
            empty="No output was checked in this time range.",
        ),
        f"$__timeFilter(second) AND {sql.CHOSEN_PIPELINES}"
        f" AND {sql.unplanned('$__timeFilter(second)')}",
    )


def _freshness() -> stat.Panel:
    return recurring.age(
        About(
            "Data age",
            "Time since the newest latency was published, and since the newest sample of the "
            "collector. The collector samples every second while a stack is running.",
            "s",
            width=4,
            height=6,
            empty="No results yet. Start a run: ./tidegauge run",
        )
    )


def _last_seconds() -> table.Panel:
    return rows(
        About(
            "Last ten seconds",
            "Latency of the newest run in its last ten seconds with outputs, in any phase, and "
            "whether the run is steady. Until the end of the measured phase, this is the "
            "conductor's latest assessment, with the figure that changed most. After the run, it "
            "is that of the measured phase.",
            "ms",
            width=24,
            height=7,
        ),
        f"""
WITH
    (
        SELECT argMax(run_id, (minute, _offset))
        FROM latency_minutes
        WHERE minute >= toStartOfMinute($__fromTime) AND minute <= $__toTime
            AND {sql.CHOSEN_PIPELINES}
    ) AS newest,
    (
        SELECT max(second)
        FROM results_latency
        WHERE $__timeFilter(second) AND {sql.CHOSEN_PIPELINES} AND run_id = newest
    ) AS until,
    told AS
    (
        SELECT run_id, argMax(detail, (e.time, e._offset)) AS last
        FROM results_lifecycle AS e
        WHERE event = 'steadiness' AND run_id = newest
        GROUP BY run_id
    )
SELECT
    l.run_id AS run,
    multiIf(
        r.steady = 1, 'steady',
        r.steady = 0, concat('NOT steady: ', r.moving[1]),
        r.concluded OR empty(told.last), 'unknown',
        JSONExtractBool(told.last, 'steady'), 'steady',
        JSONExtractString(told.last, 'still', 1)
    ) AS steadiness,
    l.pipeline AS pipeline,
    l.stage AS stage,
    l.outputs AS outputs,
    l.p50 AS p50,
    l.p95 AS p95,
    l.p99 AS p99
FROM
(
    SELECT
        run_id,
        pipeline,
        stage,
        sum(count) AS outputs,
        {sql.exact(0.5)} AS p50,
        {sql.exact(0.95)} AS p95,
        {sql.exact(0.99)} AS p99
    FROM results_latency
    WHERE $__timeFilter(second) AND definition = ${{definition:sqlstring}}
        AND {sql.CHOSEN_PIPELINES}
        AND run_id = newest
        AND second > until - INTERVAL 10 SECOND
    GROUP BY run_id, pipeline, stage
) AS l
LEFT JOIN told ON told.run_id = l.run_id
LEFT JOIN runs AS r ON r.run_id = l.run_id
ORDER BY pipeline, {sql.stage_order("l.stage")}
LIMIT 100
""",
        {
            "run": "string",
            "steadiness": "string",
            "pipeline": "string",
            "stage": "string",
            "outputs": "short",
        },
    )


def _baseline() -> table.Panel:
    return rows(
        About(
            "Latency against the baseline",
            "Latency in this time range and in the baseline, by workload, pipeline and stage. The "
            "baseline is the median of up to 20 valid runs of the same workload, rate and "
            "pipelines that ended before this time range and were not unsteady. Both cover "
            "measured phases only. Ratio is p99 divided by the baseline's p99. It is empty if "
            "there is no baseline.",
            "ms",
            width=24,
            height=7,
        ),
        f"""
WITH
    recent AS
    (
        SELECT run_id, load_name AS load, pipelines FROM runs
        WHERE valid AND ifNull(steady, true) AND step_of = '' AND concluded_at < $__fromTime
        ORDER BY concluded_at DESC
        LIMIT 20 BY load, pipelines
        LIMIT 200
    ),
    baseline AS
    (
        SELECT
            recent.load AS load,
            recent.pipelines AS pipelines,
            pipeline,
            stage,
            quantileExactLow(0.5)(p50_ms) AS p50_ms,
            quantileExactLow(0.5)(p99_ms) AS p99_ms,
            count() AS runs
        FROM latency_summary
        INNER JOIN recent ON recent.run_id = latency_summary.run_id
        WHERE definition = ${{definition:sqlstring}} AND phase = 'measure'
            AND run_id IN (SELECT run_id FROM recent)
        GROUP BY load, pipelines, pipeline, stage
    ),
    current AS
    (
        SELECT
            runs.load_name AS load,
            runs.pipelines AS pipelines,
            pipeline,
            stage,
            {sql.exact(0.5)} AS p50,
            {sql.exact(0.99)} AS p99,
            sum(count) AS outputs
        FROM {sql.LATENCIES}
        INNER JOIN (SELECT run_id, load_name, pipelines FROM runs) AS runs
            ON runs.run_id = counted.run_id
        WHERE definition = ${{definition:sqlstring}} AND phase = 'measure'
            AND {sql.CHOSEN_PIPELINES}
        GROUP BY load, pipelines, pipeline, stage
    )
SELECT
    current.load AS workload,
    current.pipeline AS pipeline,
    arrayStringConcat(arrayFilter(p -> p != current.pipeline, current.pipelines), ', ') AS beside,
    current.stage AS stage,
    current.outputs AS outputs,
    current.p50 AS p50,
    current.p99 AS p99,
    if(baseline.runs = 0, NULL, baseline.p50_ms) AS "baseline p50",
    if(baseline.runs = 0, NULL, baseline.p99_ms) AS "baseline p99",
    if(baseline.runs = 0, NULL, current.p99 / greatest(baseline.p99_ms, 1)) AS "p99 ratio",
    baseline.runs AS "baseline runs"
FROM current
LEFT JOIN baseline
    ON baseline.load = current.load
    AND baseline.pipelines = current.pipelines
    AND baseline.pipeline = current.pipeline
    AND baseline.stage = current.stage
ORDER BY workload, pipeline, {sql.stage_order("current.stage")}
LIMIT 100
""",
        {
            "workload": "string",
            "pipeline": "string",
            "beside": "string",
            "stage": "string",
            "outputs": "short",
            "p99 ratio": "none",
            "baseline runs": "none",
        },
        judged={"p99 ratio": RATIO},
    )


def _latency(share: float) -> timeseries.Panel:
    return recurring.limited_latency_over_time(
        About(
            f"Latency p{share * 100:g} by stage",
            "Latency from the contributing inputs to the output, by the broker's timestamps. "
            "Percentiles are exact, computed from counts per millisecond. Dashed lines are the "
            "limits that the thresholds of a workload set for this percentile and definition, "
            "while it was measured. Logarithmic axis.",
            "ms",
        ),
        share,
        f"definition = ${{definition:sqlstring}} AND {sql.CHOSEN_PIPELINES}",
        RUNS,
    )


def _rates() -> timeseries.Panel:
    return recurring.rates(
        About(
            "Input and output rate",
            "Records per second of LogAppendTime, counted from the topics. Windows publish fewer "
            "records than they read. The dashboard Watch has the inputs of watches.",
            "recps",
        ),
        f"$__timeFilter(second) AND if(pipeline = '', NOT {WATCHED}, {sql.CHOSEN_PIPELINES})",
    )


def _send_delay() -> timeseries.Panel:
    return recurring.send_delay(
        About(
            "Send delay of the generator",
            "Delay between the scheduled and the actual send time of a record. A run is invalid if "
            "its p99 exceeds the workload's limit, so that a late generator is not mistaken for a "
            "slow pipeline.",
            "ms",
        ),
        "$__timeFilter(second)",
    )


def _evaluator_lag() -> timeseries.Panel:
    return graph(
        About(
            "Evaluator lag",
            "Age of the record that the evaluator reads next, reported every ten seconds of a run. "
            "It delays results but does not affect the latencies in them.",
            "ms",
            empty="The evaluator reports only during runs. There was no run in this time range.",
        ),
        """
SELECT $__timeInterval(e.time) AS time, max(JSONExtractInt(detail, 'lag_ms')) AS evaluator
FROM results_lifecycle AS e
WHERE event = 'evaluating' AND $__timeFilter(e.time)
GROUP BY time
ORDER BY time
""",
        panels.SERVICES,
        interval="10s",
    )


def _behind() -> timeseries.Panel:
    return recurring.lag(
        About(
            "Pipeline lag",
            "Backlog of a stage: input records that it has not read yet, as reported by the "
            "pipeline. Pipelines with micro-batches report the remainder after each batch.",
            "short",
            empty="No pipeline reported its lag in this time range.",
        ),
        f"$__timeFilter(p.time) AND {sql.CHOSEN_PIPELINES}",
    )


def _read() -> timeseries.Panel:
    return recurring.rows_read(
        About(
            "Read rate of the pipelines",
            "Rows per second read by each stage, as reported by the pipeline.",
            "recps",
            empty="No pipeline reported progress in this time range.",
        ),
        f"$__timeFilter(p.time) AND {sql.CHOSEN_PIPELINES}",
    )
