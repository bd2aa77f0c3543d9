"""Stages: the cost of each stage of one pipeline, and its latency distribution."""

from grafana_foundation_sdk.builders import barchart, heatmap, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as dash

from deploy.grafana.program import panels, recurring, sql
from deploy.grafana.program.frame import DEFINITION, PHASE, asked, frame, placed
from deploy.grafana.program.panels import About, bars, figures, graph, heat_over_time, rows

CHOSEN = (
    "pipeline = ${pipeline:sqlstring} AND definition = ${definition:sqlstring}"
    " AND phase = ${phase:sqlstring}"
)
ONE_STAGE = f"{CHOSEN} AND stage = ${{stage:sqlstring}}"


def build() -> dash.Dashboard:
    """The dashboard."""
    result = frame(
        "stages",
        "Stages",
        "Cost, percentiles and latency distribution of each stage of one pipeline.",
        (
            asked("pipeline", "Pipeline", "Pipeline to show", sql.PIPELINE_VALUES, several=False),
            asked(
                "stage",
                "Stage",
                "Stage whose latencies are shown",
                sql.STAGE_OF_PIPELINE_VALUES,
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
        _outputs(),
        _cost(),
        _summary(),
        _over_time(0.5),
        _over_time(0.99),
        _heat(),
        _percentiles(),
        _distribution(),
    )


def _outputs() -> stat.Panel:
    return figures(
        About(
            "Latency of $stage",
            "Exact percentiles of the selected stage over the whole time range, computed from "
            "counts per millisecond.",
            "ms",
            width=8,
            height=8,
        ),
        f"SELECT {sql.PERCENTILES} FROM {sql.LATENCIES} WHERE {ONE_STAGE} HAVING sum(count) > 0",
        ((None, panels.BLUE),),
    )


def _cost() -> barchart.Panel:
    return bars(
        About(
            "Latency added by each stage",
            "Percentiles of a stage minus those of its nearest measured upstream stage, in chained "
            "pipelines. For the first stage, its whole latency. A difference of percentiles can be "
            "negative.",
            "ms",
            width=8,
            empty="This pipeline is not chained (topology chained or via-topics).",
        ),
        f"""
WITH found AS
(
    SELECT stage, toInt64({sql.exact(0.5)}) AS p50, toInt64({sql.exact(0.99)}) AS p99
    FROM {sql.LATENCIES}
    WHERE {CHOSEN}
    GROUP BY stage
)
SELECT f.stage AS stage, f.p50 - ifNull(b.p50, 0) AS p50, f.p99 - ifNull(b.p99, 0) AS p99
FROM
(
    SELECT
        toString(stage) AS stage,
        p50,
        p99,
        arrayFirst(
            name -> has((SELECT groupArray(toString(stage)) FROM found), name), made_of
        ) AS before
    FROM found
    INNER JOIN
    (
        SELECT stage, argMax(made_of, run_id) AS made_of
        FROM stage_chains
        WHERE pipeline = ${{pipeline:sqlstring}}
        GROUP BY stage
    ) AS r USING (stage)
) AS f
LEFT JOIN
(
    SELECT toString(stage) AS stage, toNullable(p50) AS p50, toNullable(p99) AS p99 FROM found
) AS b ON b.stage = f.before
ORDER BY {sql.stage_order()}
""",
        panels.PERCENTILES,
        "stage",
    )


def _summary() -> table.Panel:
    return rows(
        About(
            "Latency of every stage",
            "Exact percentiles of each stage over the whole time range.",
            "ms",
            width=8,
        ),
        f"""
SELECT stage, sum(count) AS outputs, {sql.PERCENTILES}
FROM {sql.LATENCIES}
WHERE {CHOSEN}
GROUP BY stage
ORDER BY {sql.stage_order()}
""",
        {"stage": "string", "outputs": "short"},
    )


def _over_time(share: float) -> timeseries.Panel:
    return recurring.latency_over_time(
        About(
            f"Latency p{share * 100:g} of every stage over time",
            "Exact percentile of the outputs in each interval. Logarithmic axis.",
            "ms",
        ),
        share,
        CHOSEN,
        "toString(stage)",
    )


def _heat() -> heatmap.Panel:
    return heat_over_time(
        About(
            "Latency heatmap of $stage",
            "Number of outputs by latency. Every output is included: latencies are counted per "
            "millisecond and grouped into bands here.",
            "short",
            width=24,
            height=10,
        ),
        f"""
SELECT
    $__timeInterval(at) AS time,
    {sql.band_columns()}
FROM {sql.LATENCIES}
WHERE {ONE_STAGE}
GROUP BY time
ORDER BY time
""",
    )


def _percentiles() -> timeseries.Panel:
    return graph(
        About(
            "Percentiles of $stage over time",
            "Exact percentiles of the outputs in each interval. Logarithmic axis.",
            "ms",
        ),
        f"""
SELECT $__timeInterval(at) AS time, {sql.PERCENTILES}
FROM {sql.LATENCIES}
WHERE {ONE_STAGE}
GROUP BY time
ORDER BY time
""",
        panels.PERCENTILES,
        logarithmic=True,
    )


def _distribution() -> barchart.Panel:
    conditions = ", ".join(f"{condition}, '{name}'" for name, condition in sql.bands())
    return bars(
        About(
            "Latency distribution by stage",
            "Share of a stage's outputs in each latency band.",
            "percentunit",
        ),
        f"""
SELECT
    multiIf({conditions}, '') AS band,
    toString(stage) AS of_stage,
    sum(count) / sum(sum(count)) OVER (PARTITION BY of_stage) AS share
FROM {sql.LATENCIES}
WHERE {CHOSEN}
GROUP BY band, of_stage
ORDER BY min(latency_ms), {sql.stage_order("of_stage")}
""",
        panels.STAGES,
        "milliseconds",
        pivoted=("band", "of_stage", "share"),
    )
