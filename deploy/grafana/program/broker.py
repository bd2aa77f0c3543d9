"""Panels of the broker and of consumer groups, on the dashboard Resources."""

from typing import Final

from grafana_foundation_sdk.builders import timeseries

from deploy.grafana.program import palette
from deploy.grafana.program.panels import About, graph

NOT_SCRAPED: Final = (
    "No broker was scraped in this range of time. The collector does so while a stack is up."
)
NO_GROUP: Final = "No consumer group that commits offsets was there in this range of time."


def broker_panels() -> tuple[timeseries.Panel, ...]:
    """Broker throughput, storage, and lag of consumer groups."""
    return _traffic(), _records(), _requests(), _sizes(), _lag()


def _traffic() -> timeseries.Panel:
    return graph(
        About(
            "Bytes through the brokers",
            "Bytes per second that all brokers together took in and gave out, all topics.",
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
            "Records into the brokers",
            "Records per second that came into each topic, in all brokers; topics into which none "
            "came are left out.",
            "short",
            empty=NOT_SCRAPED,
        ),
        "messages_in_per_second",
        "broker_throughput",
    )


def _requests() -> timeseries.Panel:
    return graph(
        About(
            "Time of requests to the brokers",
            "How long the brokers took to answer, as they say it themselves: the mean since their "
            "start, and the 99th percentile with its weight on the last minutes. A fetch includes "
            "the waiting for records.",
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
            "Size of the logs",
            "Bytes that all brokers together keep of each topic, copies counted. Retention bounds "
            "it.",
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
            "Consumer groups behind",
            "Records between what a group has committed and the end of the topic, the most of each "
            "point. Tidegauge's own services commit nothing, so they are not here.",
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
