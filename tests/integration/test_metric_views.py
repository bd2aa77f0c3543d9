"""The views of scraped metrics: rates of counters, broker metrics, lag of groups."""

import json

import pytest

from schemas import catalogue
from services.collector.collecting import fields_of
from services.collector.sources import COUNTER, GAUGE, Increases, Sample, Scraped
from services.runtime.grafana_macros import TimeRange, expand
from services.store.engine import Query
from tests.integration.dashboard_queries import dashboards
from tests.integration.store_engine import insert_events
from tests.unit.store.test_rows import NEW_YEAR_MS

pytestmark = pytest.mark.integration
THROUGHPUT = "kafka_server_brokertopicmetrics_{}_total"
REQUESTS = "kafka_network_requestmetrics_{}"


def insert_answers(engine, source, *answers, every_s=5.0):
    """Insert scrape results of a source every few seconds from the start of the year: lists of
    samples."""
    increases = Increases()
    events = [
        {"run_id": "r", "producer": "collector"} | fields
        for number, samples in enumerate(answers)
        for fields in fields_of(
            Scraped(
                source,
                NEW_YEAR_MS + int(number * every_s * 1000),
                every_s if number else None,
                tuple(samples),
                tuple(increases.of(samples)),
            )
        )
    ]
    insert_events(engine, catalogue.METRICS, *events)


def traffic(messages, received, sent, **labels):
    return [
        Sample(THROUGHPUT.format(name), labels, COUNTER, value)
        for name, value in (("messagesin", messages), ("bytesin", received), ("bytesout", sent))
    ]


def test_a_sample_is_one_row_with_its_labels(engine):
    insert_answers(engine, "x", [Sample("g", {"a": "b", "c": 'd"'}, GAUGE, -1.5)])
    (row,) = engine.rows(
        "SELECT run_id, source, name, labels, kind, value, increase, interval_s"
        " FROM tidegauge.results_metrics"
    )
    assert row == {
        "run_id": "r",
        "source": "x",
        "name": "g",
        "labels": {"a": "b", "c": 'd"'},
        "kind": "gauge",
        "value": -1.5,
        "increase": None,
        "interval_s": None,
    }


def test_a_counter_becomes_a_rate_that_a_restart_does_not_make_negative(engine):
    insert_answers(engine, "x", *([Sample("c_total", {}, COUNTER, v)] for v in (100, 150, 20)))
    rows = engine.rows("SELECT increase, per_second FROM tidegauge.metric_rates ORDER BY time")
    assert rows == [{"increase": 50, "per_second": 10}, {"increase": 20, "per_second": 4}]


def test_throughput_is_told_by_topic_and_for_all_topics_and_by_broker(engine):
    for source, times in (("broker-0", 1), ("broker-1", 2)):
        insert_answers(
            engine,
            source,
            [*traffic(0, 0, 0), *traffic(0, 0, 0, topic="t")],
            [
                *traffic(50 * times, 5000 * times, 9000 * times),
                *traffic(10 * times, 500 * times, 0, topic="t"),
            ],
        )
    rows = engine.rows(
        "SELECT source, topic, messages_in_per_second AS m, bytes_in_per_second AS i,"
        " bytes_out_per_second AS o FROM tidegauge.broker_throughput ORDER BY source, topic"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("broker-0", "", 10, 1000, 1800),
        ("broker-0", "t", 2, 100, 0),
        ("broker-1", "", 20, 2000, 3600),
        ("broker-1", "t", 4, 200, 0),
    ]


def test_a_point_of_a_graph_counts_the_scrapes_that_saw_nothing(engine):
    topics = [(0, 0, 0), (50, 0, 0), (50, 0, 0)]  # 10 and 0 records per second
    answers = [[*traffic(*now, topic="t"), *traffic(0, 0, 0, topic="idle")] for now in topics]
    insert_answers(engine, "broker", *answers)
    (sql,) = (
        panel["targets"][0]["rawSql"]
        for found in dashboards()
        for panel in found["panels"]
        if panel["title"] == "Incoming records by topic"
    )
    when = TimeRange(NEW_YEAR_MS, NEW_YEAR_MS + 60_000)
    shown = engine.answer(Query(expand(sql, when, 60, {}), "JSONEachRow")).data.splitlines()
    points = [(row["series"], row["value"]) for row in map(json.loads, shown)]
    assert points == [("t", 5)]


def test_the_log_of_a_topic_is_the_sum_of_its_partitions(engine):
    sizes = {("t", "0"): 10, ("t", "1"): 32, ("s", "0"): 1}
    samples = [
        Sample("kafka_log_log_size", {"topic": topic, "partition": partition}, GAUGE, size)
        for (topic, partition), size in sizes.items()
    ]
    insert_answers(engine, "broker", samples)
    rows = engine.rows(
        "SELECT topic, partitions, bytes FROM tidegauge.broker_log_size ORDER BY topic"
    )
    assert [tuple(row.values()) for row in rows] == [("s", 1, 1), ("t", 2, 42)]


def test_requests_have_a_rate_a_mean_and_a_99th_percentile(engine):
    def told(count, mean, p99):
        kind = {"request": "Produce"}
        return [
            Sample(REQUESTS.format("requests_total"), kind, COUNTER, count),
            Sample(REQUESTS.format("totaltimems_mean"), kind, GAUGE, mean),
            Sample(REQUESTS.format("totaltimems"), kind | {"quantile": "0.99"}, GAUGE, p99),
        ]

    insert_answers(engine, "broker", told(10, 1.0, 8.0), told(30, 1.5, 9.0))
    rows = engine.rows(
        "SELECT request, per_second, mean_ms, p99_ms FROM tidegauge.broker_requests ORDER BY time"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("Produce", None, 1.0, 8.0),
        ("Produce", 4.0, 1.5, 9.0),
    ]


def test_the_lag_of_a_group_is_summed_over_partitions(engine):
    samples = [
        Sample(
            "kafka_consumergroup_lag",
            {"group": group, "topic": topic, "partition": partition},
            GAUGE,
            lag,
        )
        for group, topic, partition, lag in (
            ("g", "t", "0", 5),
            ("g", "t", "1", 7),
            ("g", "s", "0", 0),
            ("h", "t", "0", 1),
        )
    ]
    insert_answers(engine, "kafka", samples)
    rows = engine.rows(
        "SELECT group_id, topic, partitions, records_behind, most_of_a_partition"
        " FROM tidegauge.consumer_lag ORDER BY group_id, topic"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("g", "s", 1, 0, 0),
        ("g", "t", 2, 12, 7),
        ("h", "t", 1, 1, 1),
    ]


def test_an_answer_that_is_too_large_for_one_event_arrives_whole(engine):
    samples = [Sample("g", {"n": str(n), "l": "x" * 1000}, GAUGE, float(n)) for n in range(1000)]
    insert_answers(engine, "x", samples)
    (row,) = engine.rows(
        "SELECT sum(value) AS s, uniqExact(labels['n']) AS n, uniqExact(_offset) AS events"
        " FROM tidegauge.results_metrics"
    )
    assert (row["s"], row["n"]) == (499_500, 1000)
    assert row["events"] > 1
