"""Overview: is it well?"""

from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.builders import stat, table

from deploy.grafana.program import panels, recurring, sql
from deploy.grafana.program.frame import frame, placed
from deploy.grafana.program.panels import NONE_IS_GOOD, TO_RUN, About, figures, rows
from services.conductor.notices.notice import ON_PURPOSE_MS

RATIO = ((None, panels.GOOD), (1.1, panels.DOUBTFUL), (1.5, panels.BAD))
# Runs that a user ended (`was_asked_for` in services/conductor/cancellation.py) are not valid, but
# need no attention.
ENDED = (
    "(match(invalid_reasons[1], '^The (run was|run of the suite gave way|conductor was stopped)')"
    " AND NOT startsWith(invalid_reasons[1], 'The run was ended by a threshold'))"
)
OF_RANGE = f"step_of = '' AND concluded AND {sql.RUNS_OF_RANGE}"
WORSE = "kind = 'change_point' AND $__timeFilter(c.time) AND JSONExtractBool(detail, 'worse')"
# Without those that a workload killed (`_is_on_purpose` in services/conductor/notices/notice.py).
DIED = f"""
event = 'part_down' AND $__timeFilter(e.time)
        AND NOT arrayExists(
            kill -> kill.1 = transform(JSONExtractString(detail, 'part'), ['kafka'], ['broker'])
                AND dateDiff('millisecond', kill.2, e.time) BETWEEN 0 AND {ON_PURPOSE_MS - 1},
            (
                SELECT groupArray((JSONExtractString(detail, 'target'), k.time))
                FROM results_lifecycle AS k
                WHERE event = 'killed' AND k.time <= $__toTime
                    AND k.time >= $__fromTime - INTERVAL {ON_PURPOSE_MS // 1000} SECOND
            )
        )
""".strip()


def build() -> dash.Dashboard:
    """The dashboard."""
    result = frame(
        "overview",
        "Overview",
        "Problems, current and recent runs, and the newest run of every workload compared with "
        "earlier runs.",
        since="now-24h",
        refresh="30s",
    )
    return placed(result, _well(), _age(), _looks(), _runs(), _newest())


def _well() -> stat.Panel:
    return figures(
        About(
            "Number of problems",
            "In this time range: INVALID runs (except interrupted ones), valid runs with outputs "
            "that were not exact (except runs that kill a part or plant faults, and verdicts that "
            "a watch limits by a threshold), runs over a threshold, figures that became "
            "permanently worse, processes that died unless a workload killed them, and records "
            "that could not be read unless a workload plants them.",
            "short",
            width=16,
            height=6,
            empty="No run was concluded in this time range, so the status is unknown."
            " Start one: ./tidegauge run",
        ),
        f"""
SELECT
    countIf(NOT valid AND NOT {ENDED}) AS "INVALID runs",
    countIf(valid AND NOT {sql.IS_EXACT}) AS "runs not exact",
    (
        SELECT uniqExact(run_id) FROM threshold_results AS c
        WHERE NOT passed AND $__timeFilter(c.time)
    ) AS "runs over a threshold",
    (SELECT count() FROM results_conclusions AS c WHERE {WORSE}) AS "figures worse",
    (SELECT count() FROM results_lifecycle AS e WHERE {DIED}) AS "processes died",
    (
        SELECT count() FROM dead_letter AS d
        WHERE $__timeFilter(d.time) AND run_id NOT IN ({sql.PLANTED_UNDECODABLE})
    ) AS "unreadable records"
FROM runs
WHERE {OF_RANGE}
HAVING count() > 0
""",
        NONE_IS_GOOD,
    )


def _age() -> stat.Panel:
    return recurring.age(
        About(
            "Data age",
            "Time since the newest latency was published, and since the newest sample of the "
            "collector. The collector samples every second while a stack is running. If only the "
            "result is old, nothing is being measured. If both are old, the stack is down or the "
            "store lags.",
            "s",
            width=8,
            height=6,
            empty="No results yet. Start a run: ./tidegauge run",
        )
    )


def _looks() -> table.Panel:
    return rows(
        About(
            "Problems",
            "Newest first. Click a run for details.",
            "string",
            width=14,
            height=9,
            empty="No problems: all runs in this time range were valid, exact, within their"
            " thresholds and no worse than before.",
        ),
        f"""
SELECT time, what, run, why, from_ms, to_ms
FROM
(
    SELECT
        concluded_at AS time,
        concat(workload, if(valid, ': not exact', ': INVALID')) AS what,
        if(
            valid, 'Outputs were wrong, missing, late, duplicate or unexpected.',
            arrayStringConcat(invalid_reasons, ' ')
        ) AS why,
        run_id AS run
    FROM runs
    WHERE {OF_RANGE} AND NOT (valid AND {sql.IS_EXACT}) AND NOT {ENDED}
    UNION ALL
    SELECT
        c.time AS time,
        'a threshold failed' AS what,
        concat(
            threshold, ': ', pipeline, ' ', stage,
            ifNull(concat(' has ', toString(value)), ' has no such figure')
        ) AS why,
        run_id AS run
    FROM threshold_results AS c
    WHERE NOT passed AND $__timeFilter(c.time)
    UNION ALL
    SELECT
        c.time AS time,
        concat(JSONExtractString(detail, 'metric'), ' got worse') AS what,
        concat(
            JSONExtractString(detail, 'stage'), ' of ', JSONExtractString(detail, 'pipeline'), ', ',
            JSONExtractString(detail, 'workload')
        ) AS why,
        run_id AS run
    FROM results_conclusions AS c
    WHERE {WORSE}
    UNION ALL
    SELECT
        e.time AS time,
        concat(JSONExtractString(detail, 'part'), ' died') AS what,
        JSONExtractString(detail, 'reason') AS why,
        '' AS run
    FROM results_lifecycle AS e
    WHERE {DIED}
) AS looked
LEFT JOIN
(
    SELECT
        run_id,
        toUnixTimestamp64Milli(requested_at) AS from_ms,
        toUnixTimestamp64Milli(ifNull(concluded_at, now64(3))) + 5000 AS to_ms
    FROM runs
) AS k ON k.run_id = looked.run
ORDER BY time DESC
LIMIT 50
""",
        {"time": "dateTimeAsIso"},
        links={"run": TO_RUN},
        hidden=("from_ms", "to_ms"),
    )


def _runs() -> table.Panel:
    return recurring.runs(
        About(
            "Current and recent runs",
            "The newest runs, with their phase or result.",
            "string",
            width=10,
            height=9,
            empty="No runs yet. Start one: ./tidegauge run",
        ),
        "WHERE step_of = ''\nORDER BY requested_at DESC\nLIMIT 8",
        ("workload", recurring.STATE),
    )


def _newest() -> table.Panel:
    return rows(
        About(
            "Newest run of every workload, compared with earlier runs",
            "Latency (latest) of the newest valid run of each workload, rate and pipelines, and "
            "the median of up to 20 earlier valid runs. Ratio is p50 divided by the p50 before. "
            "The highest ratio is first. It is empty if there is no earlier run.",
            "ms",
            width=24,
            height=12,
            empty="No valid run yet. Start one: ./tidegauge run",
        ),
        f"""
WITH
    chosen AS
    (
        SELECT
            k.run_id AS run_id,
            load_name AS load,
            k.pipelines AS pipelines,
            k.requested_at AS at,
            k.concluded_at AS until
        FROM runs AS k
        WHERE valid AND step_of = '' AND k.requested_at <= $__toTime
        ORDER BY k.requested_at DESC
        LIMIT 21 BY load, pipelines
        LIMIT 500
    ),
    found AS
    (
        SELECT
            chosen.load AS load, chosen.pipelines AS pipelines, pipeline, stage,
            chosen.run_id AS run_id, chosen.at AS at, chosen.until AS until, p50_ms, p99_ms
        FROM latency_summary AS l
        INNER JOIN chosen ON chosen.run_id = l.run_id
        WHERE definition = 'latest' AND phase = 'measure'
            AND l.run_id IN (SELECT run_id FROM chosen)
    ),
    newest AS
    (
        SELECT
            load, pipelines, pipeline, stage, argMax(run_id, f.at) AS run, max(f.at) AS at,
            argMax(f.until, f.at) AS until, argMax(p50_ms, f.at) AS p50, argMax(p99_ms, f.at) AS p99
        FROM found AS f
        GROUP BY load, pipelines, pipeline, stage
    ),
    before AS
    (
        SELECT
            f.load AS load, f.pipelines AS pipelines, f.pipeline AS pipeline, f.stage AS stage,
            count() AS runs, quantileExactLow(0.5)(p50_ms) AS p50,
            quantileExactLow(0.5)(p99_ms) AS p99
        FROM found AS f
        INNER JOIN newest AS n
            ON n.load = f.load AND n.pipelines = f.pipelines AND n.pipeline = f.pipeline
            AND n.stage = f.stage
        WHERE f.run_id != n.run
        GROUP BY load, pipelines, pipeline, stage
    )
SELECT
    n.load AS workload,
    n.pipeline AS pipeline,
    arrayStringConcat(arrayFilter(p -> p != n.pipeline, n.pipelines), ', ') AS beside,
    n.stage AS stage,
    n.p50 AS p50,
    if(b.runs = 0, NULL, b.p50) AS "p50 before",
    n.p99 AS p99,
    if(b.runs = 0, NULL, b.p99) AS "p99 before",
    if(b.runs = 0, NULL, greatest(n.p50, 1) / greatest(b.p50, 1)) AS "p50 ratio",
    b.runs AS "runs before",
    n.at AS measured,
    n.run AS run,
    toUnixTimestamp64Milli(n.at) AS from_ms,
    toUnixTimestamp64Milli(ifNull(n.until, now64(3))) + 5000 AS to_ms
FROM newest AS n
LEFT JOIN before AS b
    ON b.load = n.load AND b.pipelines = n.pipelines AND b.pipeline = n.pipeline
    AND b.stage = n.stage
ORDER BY ifNull("p50 ratio", 0) DESC, workload, pipeline, {sql.stage_order("n.stage")}
LIMIT 200
""",
        {
            "workload": "string",
            "pipeline": "string",
            "beside": "string",
            "stage": "string",
            "p50 ratio": "none",
            "runs before": "none",
            "measured": "dateTimeAsIso",
            "run": "string",
        },
        judged={"p50 ratio": RATIO},
        links={"run": TO_RUN},
        hidden=("from_ms", "to_ms"),
    )
