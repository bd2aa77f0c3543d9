"""Watch: production pipelines, measured without a generated load."""

from typing import Final

from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.builders import stat, table, timeseries

from deploy.grafana.program import recurring, sql
from deploy.grafana.program.frame import asked, frame, placed
from deploy.grafana.program.panels import About, graph, rows

WATCHED: Final = "startsWith(run_id, 'watch-')"
NO_WATCH: Final = (
    "Nothing was watched in this range of time. docs/watch-your-pipeline.md begins one."
)
WATCH_VALUES: Final = f"""
SELECT toString(pipeline) AS value
FROM results_throughput
WHERE {WATCHED} AND pipeline != '' AND $__timeFilter(second)
GROUP BY value
ORDER BY value
"""
CHOSEN: Final = f"{WATCHED} AND {sql.CHOSEN_PIPELINES}"


def build() -> dash.Dashboard:
    """The dashboard."""
    found = frame(
        "watch",
        "Watch",
        "Pipelines that are watched: how long their records take, what is missing and what came "
        "twice.",
        (asked("pipelines", "Watches", "Watches to show", WATCH_VALUES, several=True),),
        since="now-1h",
        refresh="10s",
    )
    return placed(
        found,
        _failed(),
        _troubles(),
        _latency(0.5),
        _latency(0.99),
        _rates(),
        _verdicts(),
        _lag(),
        _offenders(),
        _runs(),
    )


def _failed() -> stat.Panel:
    return recurring.failed(
        About(
            "Outputs that were not as they should be",
            "missing: none came for an input; late: after the deadline; duplicate: came again; "
            "unexpected: no input has its identity.",
            "short",
            height=6,
            empty=NO_WATCH,
        ),
        f"$__timeFilter(second) AND {CHOSEN}",
    )


def _troubles() -> table.Panel:
    return rows(
        About(
            "What happened",
            "Records that cannot be decoded, topics and partitions that came and went, records "
            "that were deleted before they were read, changes of the share that is counted, "
            "watches that were started again.",
            "string",
            height=6,
            empty="Nothing happened to the watches in this range of time.",
        ),
        """
SELECT
    e.time AS time,
    JSONExtractString(detail, 'watch') AS watch,
    JSONExtractString(detail, 'kind') AS what,
    JSONExtractString(detail, 'topic') AS topic,
    JSONExtractUInt(detail, 'records') AS records,
    JSONExtractString(detail, 'reason') AS reason
FROM results_lifecycle AS e
WHERE event = 'watch_trouble' AND $__timeFilter(e.time)
ORDER BY e.time DESC
LIMIT 100
""",
        {"time": "dateTimeAsIso"},
    )


def _latency(share: float) -> timeseries.Panel:
    return recurring.latency_over_time(
        About(
            f"p{100 * share:.0f} of latency",
            "From the (latest) input to the output, by the times that the topics have.",
            "ms",
            empty=NO_WATCH,
        ),
        share,
        CHOSEN,
    )


def _rates() -> timeseries.Panel:
    return recurring.rates(
        About(
            "Records per second",
            "Every record of the topics, by its time.",
            "short",
            empty=NO_WATCH,
        ),
        f"{WATCHED} AND $__timeFilter(second)",
        "toString(topic)",
        {},
    )


def _verdicts() -> timeseries.Panel:
    return recurring.verdicts_over_time(
        About(
            "Not as it should be, over time",
            "At the second of the output; a missing one at that of its input.",
            "short",
            empty=NO_WATCH,
        ),
        f"$__timeFilter(second) AND {CHOSEN}",
        tuple(name for name in recurring.FAILED if name != "wrong"),
    )


def _lag() -> timeseries.Panel:
    return graph(
        About(
            "Lag of the consumer groups",
            "Records between what a group has committed and the end, of the groups that a watch "
            "names.",
            "short",
            empty='No watch names a consumer group: groups = ["…"] in its file.',
        ),
        f"""
SELECT $__timeInterval(time) AS time, concat(group_id, ' ', topic) AS series,
    max(records_behind) AS records_behind
FROM consumer_lag
WHERE {WATCHED} AND $__timeFilter(time)
GROUP BY time, series
ORDER BY time, series
""",
        {},
        interval="5s",
    )


def _offenders() -> table.Panel:
    return rows(
        About(
            "Where they are",
            "Some of the records that were not as they should be; at most five of each kind in "
            "each second are kept.",
            "string",
            empty="Every output was as it should be.",
        ),
        f"""
SELECT
    second,
    pipeline AS watch,
    JSONExtractString(sample, 'verdict') AS verdict,
    JSONExtractString(sample, 'topic') AS topic,
    JSONExtractInt(sample, 'partition') AS partition,
    JSONExtractInt(sample, 'offset') AS offset
FROM results_verdicts
ARRAY JOIN samples AS sample
WHERE $__timeFilter(second) AND {CHOSEN}
ORDER BY second DESC
LIMIT 200
""",
        {"second": "dateTimeAsIso"},
    )


def _runs() -> table.Panel:
    return recurring.runs(
        About(
            "Runs",
            "Every hour of a watch is a run. Click one to see it.",
            "string",
            width=24,
            height=8,
            empty=NO_WATCH,
        ),
        f"WHERE {WATCHED} AND {sql.RUNS_OF_RANGE}\nORDER BY requested_at DESC\nLIMIT 100",
        ("workload", recurring.STATE, recurring.REASONS),
    )
