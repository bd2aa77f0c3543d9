"""Live: is it healthy now?"""

from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.builders import stat, table, timeseries

from deploy.grafana.program import palette, recurring, sql
from deploy.grafana.program.frame import DEFINITION, asked, frame, placed
from deploy.grafana.program.panels import About, graph, rows

RATIO = ((None, palette.GOOD), (1.2, palette.DOUBTFUL), (1.5, palette.BAD))


def build() -> dash.Dashboard:
    """The dashboard."""
    found = frame(
        "live",
        "Live",
        "Whether the pipelines are healthy now: latency, rates, correctness, and what runs.",
        (
            asked("pipelines", "Pipelines", "Pipelines to show", sql.PIPELINE_VALUES, several=True),
            DEFINITION,
        ),
    )
    return placed(
        found,
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
            "What runs now and ran last",
            "The five newest runs with the phase they are in, or how they ended. Click a run to "
            "see all of it.",
            "string",
            width=12,
            height=6,
            empty="No run was ever asked for. Start one: ./tidegauge run",
        ),
        "ORDER BY requested_at DESC\nLIMIT 5",
    )


def _ledger() -> stat.Panel:
    return recurring.failed(
        About(
            "Outputs that were not exact",
            "Verdicts on every output of the chosen pipelines in this range of time. Anything but "
            "zero means that the pipeline published something else than the inputs imply.",
            "short",
            width=8,
            height=6,
            empty="No output was judged in this range of time.",
        ),
        f"$__timeFilter(second) AND {sql.CHOSEN_PIPELINES}",
    )


def _freshness() -> stat.Panel:
    return recurring.age(
        About(
            "Newest result",
            "How long ago the newest latency was published, and the newest sample of the "
            "collector, which samples every second while a stack is up.",
            "s",
            width=4,
            height=6,
            empty="There are no results yet. Start a run: ./tidegauge run",
        )
    )


def _last_seconds() -> table.Panel:
    return rows(
        About(
            "The last ten seconds",
            "Latency of the newest run in the last ten seconds that it has outputs of, whatever "
            "its phase, and whether it is steady: of one that warms up or is measured, as the "
            "conductor saw it last, with what moved most; of one that is over, by its measured "
            "phase.",
            "ms",
            width=24,
            height=7,
        ),
        f"""
WITH
    newest AS
    (
        SELECT run_id, max(second) AS until
        FROM results_latency
        WHERE $__timeFilter(second) AND {sql.CHOSEN_PIPELINES}
        GROUP BY run_id
        ORDER BY until DESC
        LIMIT 1
    ),
    told AS
    (
        SELECT run_id, argMax(detail, (e.time, e._offset)) AS last
        FROM results_lifecycle AS e
        WHERE event = 'steadiness' AND run_id IN (SELECT run_id FROM newest)
        GROUP BY run_id
    )
SELECT
    l.run_id AS run,
    multiIf(
        r.steady = 1, 'steady',
        r.steady = 0, concat('NOT steady: ', r.moving[1]),
        r.concluded OR empty(told.last), 'not known',
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
        AND run_id IN (SELECT run_id FROM newest)
        AND second > (SELECT until FROM newest) - INTERVAL 10 SECOND
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
            "Per workload, pipeline and stage: latency of what was measured in this range of time "
            "beside the baseline, which is the median of up to 20 valid runs of the same workload "
            "that ended before it; warm-up and cool-down are in neither. Ratio is p99 to p99 of "
            "the baseline; without a baseline it is empty.",
            "ms",
            width=24,
            height=7,
        ),
        f"""
WITH
    recent AS
    (
        SELECT run_id, workload FROM runs
        WHERE valid AND step_of = '' AND concluded_at < $__fromTime
        ORDER BY concluded_at DESC
        LIMIT 20 BY workload
        LIMIT 200
    ),
    baseline AS
    (
        SELECT
            recent.workload AS workload,
            pipeline,
            stage,
            quantileExactLow(0.5)(p50_ms) AS p50_ms,
            quantileExactLow(0.5)(p99_ms) AS p99_ms,
            count() AS runs
        FROM latency_summary
        INNER JOIN recent ON recent.run_id = latency_summary.run_id
        WHERE definition = ${{definition:sqlstring}} AND phase = 'measure'
            AND run_id IN (SELECT run_id FROM recent)
        GROUP BY workload, pipeline, stage
    ),
    current AS
    (
        SELECT
            runs.workload AS workload,
            pipeline,
            stage,
            {sql.exact(0.5)} AS p50,
            {sql.exact(0.99)} AS p99,
            sum(count) AS outputs
        FROM {sql.LATENCIES}
        INNER JOIN (SELECT run_id, workload FROM runs) AS runs ON runs.run_id = counted.run_id
        WHERE definition = ${{definition:sqlstring}} AND phase = 'measure'
            AND {sql.CHOSEN_PIPELINES}
        GROUP BY workload, pipeline, stage
    )
SELECT
    current.workload AS workload,
    current.pipeline AS pipeline,
    current.stage AS stage,
    current.outputs AS outputs,
    current.p50 AS p50,
    current.p99 AS p99,
    if(baseline.runs = 0, NULL, baseline.p50_ms) AS "baseline p50",
    if(baseline.runs = 0, NULL, baseline.p99_ms) AS "baseline p99",
    if(baseline.runs = 0, NULL, current.p99 / greatest(baseline.p99_ms, 1)) AS ratio,
    baseline.runs AS "baseline runs"
FROM current
LEFT JOIN baseline
    ON baseline.workload = current.workload
    AND baseline.pipeline = current.pipeline
    AND baseline.stage = current.stage
ORDER BY workload, pipeline, {sql.stage_order("current.stage")}
LIMIT 100
""",
        {
            "workload": "string",
            "pipeline": "string",
            "stage": "string",
            "outputs": "short",
            "ratio": "none",
            "baseline runs": "none",
        },
        judged={"ratio": RATIO},
    )


def _latency(share: float) -> timeseries.Panel:
    return recurring.latency_over_time(
        About(
            f"Latency p{share * 100:g} by stage",
            "From the contributing inputs to the output, both as the broker stamped them; exact, "
            "from the count of every millisecond. A logarithmic axis.",
            "ms",
        ),
        share,
        f"definition = ${{definition:sqlstring}} AND {sql.CHOSEN_PIPELINES}",
    )


def _rates() -> timeseries.Panel:
    return recurring.rates(
        About(
            "Input and output rate",
            "Records per second by the time at which the broker appended them, counted from the "
            "topics themselves. Windows publish fewer records than they read.",
            "recps",
        ),
        f"$__timeFilter(second) AND (pipeline = '' OR {sql.CHOSEN_PIPELINES})",
    )


def _send_delay() -> timeseries.Panel:
    return recurring.send_delay(
        About(
            "How late the generator sent",
            "Send delay: from when the load shape wanted a record sent to when it was. A run whose "
            "p99 is over its workload's limit is invalid, so that a late generator does not look "
            "like a slow pipeline.",
            "ms",
        ),
        "$__timeFilter(second)",
    )


def _evaluator_lag() -> timeseries.Panel:
    return graph(
        About(
            "How far behind the evaluator reads",
            "Age of what the evaluator reads next, as it reports it every ten seconds of a run. "
            "It delays results, never the latencies in them.",
            "ms",
            empty="The evaluator reports while a run lasts. There was none in this range of time.",
        ),
        """
SELECT $__timeInterval(e.time) AS time, max(JSONExtractInt(detail, 'lag_ms')) AS evaluator
FROM results_lifecycle AS e
WHERE event = 'evaluating' AND $__timeFilter(e.time)
GROUP BY time
ORDER BY time
""",
        palette.SERVICES,
        interval="10s",
    )


def _behind() -> timeseries.Panel:
    return recurring.lag(
        About(
            "How far behind the pipelines read",
            "Records of its inputs that a stage had not read yet, as the pipeline says: what piles "
            "up before it. Of micro-batches, what a batch left.",
            "short",
            empty="No pipeline said how far it is behind in this range of time.",
        ),
        f"$__timeFilter(p.time) AND {sql.CHOSEN_PIPELINES}",
    )


def _read() -> timeseries.Panel:
    return recurring.rows_read(
        About(
            "What the pipelines read",
            "Rows per second that each stage had, as the pipeline says while it runs.",
            "recps",
            empty="No pipeline reported progress in this range of time.",
        ),
        f"$__timeFilter(p.time) AND {sql.CHOSEN_PIPELINES}",
    )
