"""Compare: pipelines side by side on the same stage, in comparable runs: of the same load and
machine. Other runs in the range are omitted and listed."""

from grafana_foundation_sdk.builders import barchart, table, timeseries
from grafana_foundation_sdk.builders import dashboard as dash

from deploy.grafana.program import panels, recurring, sql
from deploy.grafana.program.frame import DEFINITION, PHASE, asked, frame, placed
from deploy.grafana.program.panels import About, bars, graph, rows

RECENT = "requested_at BETWEEN $__fromTime - 86400 AND $__toTime"
# By the newest conclusion: a run that is evaluated again has several.
INVALID = (
    "run_id IN (SELECT run_id FROM results_conclusions AS k WHERE kind = 'run' GROUP BY run_id"
    " HAVING NOT argMax(k.valid, (k.time, k._offset)))"
)
COMPARABLE = (
    f"(SELECT run_id FROM run_loads WHERE load = ${{load:sqlstring}} AND {RECENT}"
    f" AND NOT {INVALID})"
)
OF_LOAD = f"run_id IN {COMPARABLE}"
# First the load with the most pipelines, of these the newest.
LOAD_VALUES = """
SELECT load AS value
FROM run_loads
WHERE run_id IN (SELECT run_id FROM results_throughput WHERE $__timeFilter(second))
GROUP BY value
ORDER BY uniqArray(pipelines) DESC, max(requested_at) DESC
"""
PIPELINE_VALUES = sql.PIPELINE_VALUES.replace("GROUP BY", f"    AND {OF_LOAD}\nGROUP BY")
STAGE_VALUES = sql.STAGE_VALUES.replace("GROUP BY", f"    AND {OF_LOAD}\nGROUP BY")
CHOSEN = (
    f"{OF_LOAD} AND {sql.CHOSEN_PIPELINES} AND definition = ${{definition:sqlstring}}"
    " AND phase = ${phase:sqlstring}"
)
ONE_STAGE = f"{CHOSEN} AND stage = ${{stage:sqlstring}}"


def build() -> dash.Dashboard:
    """The dashboard."""
    result = frame(
        "compare",
        "Compare",
        "Pipelines side by side: latency, correctness, rate and cost on the same stages, under the "
        "same load on the same machine.",
        (
            asked(
                "load",
                "Load",
                "Workload, domain, rate, non-default load settings, and machine. Only runs with "
                "the same load are compared",
                LOAD_VALUES,
                several=False,
            ),
            asked("pipelines", "Pipelines", "Pipelines to show", PIPELINE_VALUES, several=True),
            asked(
                "stage",
                "Stage",
                "Stage that is compared over time",
                STAGE_VALUES,
                several=False,
            ),
            DEFINITION,
            PHASE,
        ),
        since="now-1h",
        refresh="30s",
    )
    return placed(
        result,
        _by_stage(0.5),
        _by_stage(0.99),
        _over_time(0.5),
        _over_time(0.99),
        _summary(),
        _left_out(),
        _rates(),
        _cost(),
    )


def _by_stage(share: float) -> barchart.Panel:
    return bars(
        About(
            f"Latency p{share * 100:g} of every stage, by pipeline",
            "Exact percentile of each pipeline and stage over the whole time range. Stages that a "
            "pipeline does not run have no bar.",
            "ms",
        ),
        f"""
SELECT
    toString(pipeline) AS of_pipeline,
    toString(stage) AS of_stage,
    {sql.exact(share)} AS latency_ms
FROM {sql.LATENCIES}
WHERE {CHOSEN}
GROUP BY of_pipeline, of_stage
ORDER BY of_pipeline, {sql.stage_order("of_stage")}
""",
        panels.STAGES,
        "pipeline",
        pivoted=("of_pipeline", "of_stage", "latency_ms"),
    )


def _over_time(share: float) -> timeseries.Panel:
    return recurring.latency_over_time(
        About(
            f"Latency p{share * 100:g} of $stage over time, by pipeline",
            "Exact percentile of the outputs in each interval. Logarithmic axis.",
            "ms",
        ),
        share,
        ONE_STAGE,
        "toString(pipeline)",
        {},
    )


def _summary() -> table.Panel:
    return rows(
        About(
            "Pipelines side by side",
            "Outputs, exact percentiles, ratio to the fastest, and share of exact outputs, by "
            "stage and pipeline. The ratio is p99 divided by the p99 of the stage's fastest "
            "pipeline.",
            "ms",
            width=24,
            height=9,
        ),
        f"""
SELECT
    l.stage AS stage,
    l.pipeline AS pipeline,
    l.outputs AS outputs,
    l.p50 AS p50,
    l.p90 AS p90,
    l.p99 AS p99,
    l.max AS max,
    l.p99 / greatest(min(l.p99) OVER (PARTITION BY l.stage), 1) AS "ratio to fastest",
    if(v.judged > 0, v.exact / v.judged, NULL) AS "exact"
FROM
(
    SELECT stage, pipeline, sum(count) AS outputs, {sql.PERCENTILES}
    FROM {sql.LATENCIES}
    WHERE {CHOSEN}
    GROUP BY stage, pipeline
) AS l
LEFT JOIN
(
    SELECT
        stage,
        pipeline,
        sum(r.exact) AS exact,
        exact + sum(wrong) + sum(missing) + sum(late) + sum(duplicate) + sum(unexpected) AS judged
    FROM results_verdicts AS r
    WHERE $__timeFilter(second) AND {OF_LOAD} AND phase = ${{phase:sqlstring}}
    GROUP BY stage, pipeline
) AS v ON v.stage = l.stage AND v.pipeline = l.pipeline
ORDER BY {sql.stage_order("l.stage")}, p99
LIMIT 200
""",
        {
            "stage": "string",
            "pipeline": "string",
            "outputs": "short",
            "ratio to fastest": "none",
            "exact": "percentunit",
        },
    )


def _left_out() -> table.Panel:
    return rows(
        About(
            "Runs that are not compared",
            "Runs in this time range that are INVALID, or not comparable with those above, for "
            "example because of another workload, domain, rate, transport, format, fault or "
            "machine. To compare the latter, select their load.",
            "short",
            width=24,
            height=4,
            empty="All runs in this time range are valid and have the selected load.",
        ),
        f"""
SELECT
    load,
    arrayStringConcat(arraySort(groupUniqArrayArray(pipelines)), ', ') AS "pipelines",
    if(load = ${{load:sqlstring}}, 'INVALID', 'another load') AS why,
    count() AS runs,
    max(requested_at) AS newest
FROM run_loads
WHERE (load != ${{load:sqlstring}} OR {INVALID}) AND {RECENT}
    AND run_id IN (SELECT run_id FROM results_throughput WHERE $__timeFilter(second))
GROUP BY load
ORDER BY newest DESC
LIMIT 50
""",
        {"why": "string", "runs": "short", "newest": "dateTimeAsIso"},
    )


def _rates() -> timeseries.Panel:
    return recurring.rates(
        About(
            "Output rate of $stage, by pipeline",
            "Records per second of LogAppendTime, counted from the topics.",
            "recps",
        ),
        f"$__timeFilter(second) AND {OF_LOAD} AND stage = ${{stage:sqlstring}}"
        f" AND {sql.CHOSEN_PIPELINES}",
        "toString(pipeline)",
        {},
    )


def _cost() -> timeseries.Panel:
    return graph(
        About(
            "CPU cores by pipeline",
            "Cores used by the processes of each pipeline, all stages together.",
            "short",
            empty="No pipeline process was running in this time range.",
        ),
        f"""
SELECT
    $__timeInterval(r.time) AS time,
    toString(pipeline) AS series,
    sum(cpu_seconds) / $__interval_s AS cores
FROM results_resources AS r
WHERE pipeline != '' AND $__timeFilter(r.time) AND {OF_LOAD}
    AND {sql.CHOSEN_PIPELINES}
GROUP BY time, series
ORDER BY time, series
""",
        {},
        interval="2s",
    )
