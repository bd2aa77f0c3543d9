"""Watch: production pipelines, measured without a generated load."""

from typing import Final

from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.builders import stat, table, timeseries

from deploy.grafana.program import panels, recurring, sql
from deploy.grafana.program.frame import WATCHED, annotation, asked, frame, listed, placed
from deploy.grafana.program.panels import About, graph, rows
from schemas.threshold import OF_WATCH

NO_WATCH: Final = "No watch was running in this time range. See docs/watch-your-pipeline.md."
WATCH_VALUES: Final = f"""
SELECT toString(pipeline) AS value
FROM results_throughput
WHERE {WATCHED} AND pipeline != '' AND $__timeFilter(second)
GROUP BY value
ORDER BY value
"""
UNTIL: Final = "${until:sqlstring}"
CHOSEN: Final = f"{WATCHED} AND {sql.CHOSEN_PIPELINES}"
# For rows without a pipeline.
RUNS_CHOSEN: Final = f"run_id IN (SELECT run_id FROM run_pipelines WHERE {CHOSEN})"

TROUBLE: Final = """event = 'watch_trouble' AND $__timeFilter(time)
    AND $__conditionalAll(
        JSONExtractString(detail, 'watch') IN (${pipelines:sqlstring}), $pipelines)"""
EVENTS: Final = f"""
SELECT
    time,
    concat(
        replaceAll(JSONExtractString(detail, 'kind'), '_', ' '), ' ',
        JSONExtractString(detail, 'watch'), ' ', JSONExtractString(detail, 'topic')
    ) AS text,
    'fault' AS tags
FROM results_lifecycle
WHERE {TROUBLE}
ORDER BY time
LIMIT 200
"""


def build() -> dash.Dashboard:
    """The dashboard."""
    result = frame(
        "watch",
        "Watch",
        "Watched pipelines: latency, rates, and missing, late and duplicate outputs.",
        (
            asked("pipelines", "Watches", "Watches to show", WATCH_VALUES, several=True),
            listed(
                "until",
                "Latency",
                "latest: until the output is appended; visible: until readers of committed records "
                "have it, of outputs in transactions",
                OF_WATCH,
            ),
        ),
        since="now-1h",
        refresh="10s",
        events=(annotation("Events", EVENTS, panels.VERMILION),),
    )
    return placed(
        result,
        _failed(),
        _troubles(),
        _latency(0.5),
        _latency(0.99),
        _rates(),
        _bytes(),
        _verdicts(),
        _aborted(),
        _lag(),
        _lag_in_time(),
        _stages(),
        _slices(),
        _offenders(),
        _runs(),
    )


def _failed() -> stat.Panel:
    return recurring.failed(
        About(
            "Incorrect outputs",
            "missing: no output for an input; late: published after the deadline; duplicate: "
            "published again; unexpected: no input with the same identity.",
            "short",
            height=6,
            empty=NO_WATCH,
        ),
        f"$__timeFilter(second) AND {CHOSEN}",
    )


def _troubles() -> table.Panel:
    return rows(
        About(
            "Events",
            "Undecodable records, topics and partitions that were added or removed, records that "
            "were deleted before they were read, changes of the sampled share, and restarts of "
            "watches.",
            "string",
            height=6,
            empty="No events of watches in this time range.",
        ),
        f"""
SELECT
    time,
    JSONExtractString(detail, 'watch') AS watch,
    JSONExtractString(detail, 'kind') AS what,
    JSONExtractString(detail, 'topic') AS topic,
    JSONExtractUInt(detail, 'records') AS records,
    JSONExtractString(detail, 'reason') AS reason
FROM results_lifecycle
WHERE {TROUBLE}
ORDER BY time DESC
LIMIT 100
""",
        {"time": "dateTimeAsIso"},
    )


def _latency(share: float) -> timeseries.Panel:
    return recurring.limited_latency_over_time(
        About(
            f"Latency p{100 * share:.0f}",
            "Latency from the (latest) input to the output, or until readers of committed records "
            "have it, by the timestamps in the topics. Dashed: the limit of a threshold.",
            "ms",
            empty=NO_WATCH,
        ),
        share,
        f"{CHOSEN} AND definition = {UNTIL}",
        f"SELECT run_id FROM run_pipelines WHERE {CHOSEN}",
        definition=UNTIL,
    )


def _rates() -> timeseries.Panel:
    return _by_topic(
        About(
            "Records per second",
            "All records of the topics, by their timestamps.",
            "short",
            empty=NO_WATCH,
        ),
        "records",
    )


def _aborted() -> timeseries.Panel:
    return _by_topic(
        About(
            "Aborted records per second",
            "Records of aborted transactions of the output topics. They are no outputs.",
            "short",
            empty="No record of an aborted transaction was read in this time range.",
        ),
        "aborted",
    )


def _bytes() -> timeseries.Panel:
    return _by_topic(
        About(
            "Bytes per second",
            "Sizes of the values of all records of the topics, as decompressed by the reader.",
            "Bps",
            empty=NO_WATCH,
        ),
        "bytes",
    )


def _by_topic(about: About, column: str) -> timeseries.Panel:
    """A column of the topics per second. Of a topic in several watches, that of one watch; of one
    that a hop and the whole have as output, that of one of these."""
    return graph(
        about,
        f"""
SELECT time, series, max(amount) / $__interval_s AS {column}_per_second
FROM
(
    SELECT
        $__timeInterval(second) AS time,
        toString(topic) AS series,
        sum({column}) AS amount
    FROM throughput_by_second
    WHERE {RUNS_CHOSEN} AND $__timeFilter(second) AND {column} > 0
    GROUP BY time, series, stage, extract(run_id, '^watch-(.+)-[0-9]{{8}}-[0-9]{{6}}')
)
GROUP BY time, series
ORDER BY time, series
""",
        {},
    )


def _stages() -> table.Panel:
    return rows(
        About(
            "Verdicts by stage",
            "Of the whole and of each hop: a record is missing at the hop where it stopped, and "
            "a duplicate at the hop where it was published again.",
            "short",
            width=24,
            height=6,
            empty=NO_WATCH,
        ),
        f"""
SELECT
    pipeline AS watch,
    stage,
    {sql.verdict_sums(("exact", *(name for name in recurring.FAILED if name != "wrong")))}
FROM results_verdicts AS v
WHERE {CHOSEN} AND $__timeFilter(second)
GROUP BY watch, stage
ORDER BY watch, stage
LIMIT 200
""",
        {},
    )


def _slices() -> table.Panel:
    return rows(
        About(
            "Latency by partition and field",
            "By partition of the output topics and, if a topic of the watch has `by`, by values of "
            "that field, in the minutes of the time range. The slowest are first.",
            "ms",
            width=24,
            empty="No output has a latency in this time range.",
        ),
        f"""
SELECT
    pipeline AS watch,
    dimension,
    value,
    sum(s.count) AS outputs,
    quantileExactWeighted(0.5)(latency_ms, s.count) AS p50,
    quantileExactWeighted(0.99)(latency_ms, s.count) AS p99,
    max(latency_ms) AS max
FROM results_slices AS s
WHERE {CHOSEN} AND minute >= toStartOfMinute($__fromTime) AND minute <= $__toTime
GROUP BY watch, dimension, value
ORDER BY p99 DESC, watch, dimension, value
LIMIT 200
""",
        {"outputs": "short"},
    )


def _verdicts() -> timeseries.Panel:
    return recurring.verdicts_over_time(
        About(
            "Incorrect outputs over time",
            "Per second, by output time. Missing outputs count at the time of their input.",
            "short",
            empty=NO_WATCH,
        ),
        f"$__timeFilter(second) AND {CHOSEN}",
        tuple(name for name in recurring.FAILED if name != "wrong"),
    )


def _lag() -> timeseries.Panel:
    return _of_groups(
        "Consumer group lag",
        "Records between the committed offset of a group and the end of the topic, for groups "
        "named by a watch.",
        "short",
        "records_behind",
    )


def _lag_in_time() -> timeseries.Panel:
    return _of_groups(
        "Consumer group lag in time",
        "Age of the oldest record that a group reads next in a topic, 0 if there is none, for "
        "groups named by a watch.",
        "s",
        "seconds_behind",
    )


def _of_groups(title: str, description: str, unit: str, column: str) -> timeseries.Panel:
    """A column of the view consumer_lag over time, by group and topic."""
    return graph(
        About(
            title,
            description,
            unit,
            empty='No watch names a consumer group. Add groups = ["…"] to its file.',
        ),
        f"""
SELECT $__timeInterval(time) AS time, concat(group_id, ' ', topic) AS series,
    max({column}) AS {column}
FROM consumer_lag
WHERE {RUNS_CHOSEN} AND $__timeFilter(time)
GROUP BY time, series
ORDER BY time, series
""",
        {},
        interval="5s",
    )


def _offenders() -> table.Panel:
    return rows(
        About(
            "Samples of incorrect outputs",
            "Positions of some of the incorrect outputs. At most five of each kind are kept per "
            "second.",
            "string",
            width=24,
            empty="Every output was correct.",
        ),
        f"""
SELECT
    second,
    pipeline AS watch,
    stage,
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
            "Each hour of a watch is a run. Click a run for details.",
            "string",
            width=24,
            height=8,
            empty=NO_WATCH,
        ),
        f"WHERE {RUNS_CHOSEN} AND {sql.RUNS_OF_RANGE}\nORDER BY requested_at DESC\nLIMIT 100",
        ("workload", recurring.STATE, recurring.REASONS, "timestamps"),
    )
