"""Panels of the broker and of consumer groups, on the dashboard Resources."""

from typing import Final

from grafana_foundation_sdk.builders import timeseries

from deploy.grafana.program import palette
from deploy.grafana.program.panels import About, graph

NOT_SCRAPED: Final = (
    "No broker was scraped in this time range. The collector scrapes while a stack is running."
)
NO_GROUP: Final = "No consumer group with committed offsets in this time range."


def broker_panels() -> tuple[timeseries.Panel, ...]:
    """Broker throughput, storage, and lag of consumer groups."""
    return _traffic(), _records(), _requests(), _sizes(), _lag()


def _traffic() -> timeseries.Panel:
    return graph(
        About(
            "Broker throughput",
            "Bytes per second into and out of all brokers, all topics together.",
            "binBps",
            empty=NOT_SCRAPED,
        ),
        """
SELECT time, sum(bytes_in) AS "in", sum(bytes_out) AS "out"
FROM
(
    SELECT
        $__timeInterval(b.time) AS time,
        source,
        avg(bytes_in_per_second) AS bytes_in,
        avg(bytes_out_per_second) AS bytes_out
    FROM broker_throughput AS b
    WHERE topic = '' AND $__timeFilter(b.time)
    GROUP BY time, source
)
GROUP BY time
ORDER BY time
""",
        {"in": palette.BLUE, "out": palette.ORANGE},
        interval="5s",
    )


def _records() -> timeseries.Panel:
    return _by_topic(
        About(
            "Incoming records by topic",
            "Records per second into each topic, all brokers together. Topics without records are "
            "omitted.",
            "short",
            empty=NOT_SCRAPED,
        ),
        "messages_in_per_second",
        "broker_throughput",
    )


def _requests() -> timeseries.Panel:
    return graph(
        About(
            "Broker request time",
            "Request time as reported by the brokers: the mean since their start, and the 99th "
            "percentile weighted towards the last minutes. A fetch includes the time spent waiting "
            "for records.",
            "ms",
            empty=NOT_SCRAPED,
        ),
        """
SELECT
    $__timeInterval(b.time) AS time,
    avgIf(mean_ms, request = 'Produce') AS "produce, mean",
    maxIf(p99_ms, request = 'Produce') AS "produce, p99",
    avgIf(mean_ms, request = 'FetchConsumer') AS "fetch, mean",
    maxIf(p99_ms, request = 'FetchConsumer') AS "fetch, p99"
FROM broker_requests AS b
WHERE $__timeFilter(b.time)
GROUP BY time
ORDER BY time
""",
        {
            "produce, mean": palette.SKY,
            "produce, p99": palette.BLUE,
            "fetch, mean": palette.YELLOW,
            "fetch, p99": palette.ORANGE,
        },
        interval="5s",
    )


def _sizes() -> timeseries.Panel:
    return _by_topic(
        About(
            "Log size by topic",
            "Bytes of each topic on all brokers, including replicas. Retention limits it.",
            "bytes",
            empty=NOT_SCRAPED,
        ),
        "bytes",
        "broker_log_size",
    )


def _by_topic(about: About, column: str, view: str) -> timeseries.Panel:
    """A line per topic, summed over brokers: each point is the mean of all its scrapes, including
    zeros. Topics without any value in the range are omitted, and so is the sum of all, whose name
    is empty."""
    return graph(
        about,
        f"""
SELECT time, series, value
FROM
(
    SELECT
        time,
        topic AS series,
        sum(of_source) AS value,
        max(sum(of_source)) OVER (PARTITION BY topic) AS most
    FROM
    (
        SELECT $__timeInterval(b.time) AS time, source, topic, avg({column}) AS of_source
        FROM {view} AS b
        WHERE topic != '' AND $__timeFilter(b.time)
        GROUP BY time, source, topic
    )
    GROUP BY time, topic
)
WHERE most > 0
ORDER BY time, series
""",
        {},
        interval="5s",
    )


def _lag() -> timeseries.Panel:
    return graph(
        About(
            "Consumer group lag",
            "Records between the committed offset of a group and the end of the topic, maximum of "
            "each interval. Tidegauge's own services do not commit offsets, so they are not shown.",
            "short",
            width=24,
            empty=NO_GROUP,
        ),
        """
SELECT
    $__timeInterval(l.time) AS time,
    concat(group_id, ' ', topic) AS series,
    max(records_behind) AS value
FROM consumer_lag AS l
WHERE $__timeFilter(l.time)
GROUP BY time, series
ORDER BY time, series
""",
        {},
        interval="5s",
    )
