"""Sustainable throughput: the rate that a pipeline sustains, and the steps of the search."""

from grafana_foundation_sdk.builders import barchart, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as dash

from deploy.grafana.program import panels, recurring, sql
from deploy.grafana.program.frame import asked, frame, placed
from deploy.grafana.program.panels import About, bars, figures, graph, rows

NO_SEARCH = (
    "No search for the sustainable rate was concluded in this time range. Start one:"
    " ./tidegauge run sustainable-throughput"
)
# Searches in the time range; initially the newest.
SEARCHES = """
SELECT run_id
FROM results_conclusions AS c
WHERE kind IN ('search_step', 'sustainable_throughput') AND $__timeFilter(c.time)
GROUP BY run_id
ORDER BY max(c.time) DESC
LIMIT 500
"""
FOUND = "results_conclusions AS c WHERE kind = 'sustainable_throughput' AND $__timeFilter(c.time)"
STEPS = "results_conclusions AS c WHERE kind = 'search_step' AND run_id = ${search:sqlstring}"
RATE = (
    "if(JSONExtractBool(detail, 'sustained') = {},"
    " JSONExtract(detail, 'rate_per_second', 'Nullable(Float64)'), NULL)"
)


def build() -> dash.Dashboard:
    """The dashboard."""
    result = frame(
        "sustainable",
        "Sustainable throughput",
        "The highest rate that a pipeline sustains without growing latency or backlog.",
        (asked("search", "Search", "Search to show, newest first", SEARCHES, several=False),),
        since="now-7d",
        refresh="1m",
    )
    return placed(result, _latest(), _frontier(), _steps(), _rates(), _medians(), _results())


def _latest() -> stat.Panel:
    return figures(
        About(
            "Rate found by the search",
            "The rate found, and the bounds of the capacity: the highest rate that was sustained "
            "and the lowest rate that was not.",
            "recps",
            width=8,
            empty="This search has not found a rate yet.",
        ),
        """
SELECT
    JSONExtract(detail, 'rate_per_second', 'Nullable(Float64)') AS sustained,
    JSONExtract(detail, 'interval_per_second', 'Array(Nullable(Float64))')[1] AS "at least",
    JSONExtract(detail, 'interval_per_second', 'Array(Nullable(Float64))')[2] AS below
FROM results_conclusions
WHERE kind = 'sustainable_throughput' AND run_id = ${search:sqlstring}
ORDER BY time DESC
LIMIT 1
""",
        ((None, panels.BLUE),),
    )


def _frontier() -> timeseries.Panel:
    return graph(
        About(
            "Sustainable rate over time, with its interval",
            "One point per search and pipeline: the rate found, the highest rate that was "
            "sustained, and the lowest rate that was not.",
            "recps",
            width=16,
            empty=NO_SEARCH,
        ),
        f"""
SELECT
    c.time AS time,
    concat(JSONExtractString(detail, 'pipeline'), ' ', bound.1) AS series,
    bound.2 AS rate_per_second
FROM
(
    SELECT
        c.time AS time,
        detail,
        JSONExtract(detail, 'interval_per_second', 'Array(Nullable(Float64))') AS interval,
        [
            ('sustained', JSONExtract(detail, 'rate_per_second', 'Nullable(Float64)')),
            ('least', interval[1]),
            ('below', interval[2])
        ] AS bounds
    FROM {FOUND}
) AS c
ARRAY JOIN bounds AS bound
WHERE bound.2 IS NOT NULL
ORDER BY time, series
LIMIT 5000
""",
        {"sustained": panels.BLUE, "least": panels.SKY, "below": panels.ORANGE},
    )


def _steps() -> table.Panel:
    return rows(
        About(
            "Steps of the search",
            "The rate of each step, whether it was sustained, the reasons if it was not, and "
            "whether it was steady while it was measured.",
            "string",
            width=24,
            empty=NO_SEARCH,
        ),
        f"""
WITH JSONExtract(detail, 'steady', 'Nullable(Bool)') AS steady
SELECT
    JSONExtractUInt(detail, 'step') AS step,
    c.time AS time,
    JSONExtractFloat(detail, 'rate_per_second') AS rate,
    multiIf(
        JSONExtractBool(detail, 'sustained'), 'sustained',
        JSONExtractBool(detail, 'undecided'), 'undecided',
        'NOT sustained'
    ) AS result,
    JSONExtractString(detail, 'limited_by') AS "limited by",
    JSONExtract(detail, 'warm_up_s', 'Nullable(UInt32)') AS "warm-up",
    JSONExtractUInt(detail, 'measured_s') AS measured,
    {recurring.STEADINESS},
    arrayMax(
        entry -> ifNull(JSONExtract(entry.2, 'highest_median_ms', 'Nullable(Float64)'), 0),
        JSONExtractKeysAndValuesRaw(detail, 'stages')
    ) AS "highest median",
    JSONExtract(detail, 'cpu_share', 'Nullable(Float64)') AS "CPU use",
    arrayStringConcat(JSONExtract(detail, 'reasons', 'Array(String)'), ' ') AS reasons
FROM {STEPS}
ORDER BY step
LIMIT 1000
""",
        {
            "time": "dateTimeAsIso",
            "rate": "recps",
            "warm-up": "s",
            "measured": "s",
            "highest median": "ms",
            "CPU use": "percentunit",
        },
    )


def _rates() -> barchart.Panel:
    return bars(
        About(
            "Rates tried by the search",
            "One bar per step, in order: sustained or rejected.",
            "recps",
            empty=NO_SEARCH,
        ),
        f"""
SELECT
    toString(JSONExtractUInt(detail, 'step')) AS step,
    {RATE.format("1")} AS sustained,
    {RATE.format("0")} AS rejected
FROM {STEPS}
ORDER BY toUInt32(step)
LIMIT 1000
""",
        {"sustained": panels.BLUE, "rejected": panels.VERMILION},
        "step",
    )


def _medians() -> barchart.Panel:
    return bars(
        About(
            "Highest median latency by rate",
            "The highest median at any time during a step, by stage. It grows indefinitely if the "
            "rate is not sustained.",
            "ms",
            empty=NO_SEARCH,
        ),
        f"""
SELECT
    concat(toString(round(JSONExtractFloat(detail, 'rate_per_second'))), '/s') AS rate,
    arrayJoin(JSONExtractKeys(detail, 'stages')) AS stage,
    JSONExtract(detail, 'stages', stage, 'highest_median_ms', 'Nullable(Float64)') AS median_ms
FROM {STEPS}
ORDER BY JSONExtractFloat(detail, 'rate_per_second'), c.time, {sql.stage_order()}
LIMIT 5000
""",
        panels.STAGES,
        "rate",
        pivoted=("rate", "stage", "median_ms"),
    )


def _results() -> table.Panel:
    return rows(
        About(
            "Searches in this time range",
            "Newest first. Confirmed: the rate was sustained again, for longer. Verified: the run "
            "at a share of the rate was sustained too. Limited by: the cause why the next higher "
            "rate was not sustained.",
            "recps",
            width=24,
            empty=NO_SEARCH,
        ),
        f"""
SELECT
    c.time AS time,
    run_id AS search,
    JSONExtractString(detail, 'pipeline') AS pipeline,
    arrayStringConcat(JSONExtract(detail, 'stages', 'Array(String)'), ', ') AS stages,
    JSONExtractString(detail, 'policy') AS policy,
    JSONExtract(detail, 'rate_per_second', 'Nullable(Float64)') AS sustained,
    JSONExtract(detail, 'interval_per_second', 'Array(Nullable(Float64))')[2] AS "not sustained",
    if(JSONExtractBool(detail, 'confirmed'), 'yes', 'no') AS confirmed,
    if(JSONExtractBool(detail, 'verified'), 'yes', 'no') AS verified,
    JSONExtractString(detail, 'limited_by') AS "limited by",
    arrayStringConcat(JSONExtract(detail, 'limit', 'Array(String)'), ' ') AS limit_reasons
FROM {FOUND}
ORDER BY c.time DESC
LIMIT 200
""",
        {"time": "dateTimeAsIso"},
    )
