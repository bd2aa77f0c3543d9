"""The local broker with its JMX exporter, and the collector that scrapes it."""

import json
import time
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, TopicPartition

from deploy.local.parts import KAFKA, service
from deploy.local.stack import Stack
from schemas import catalogue
from services.collector.settings import METRICS
from services.collector.sources import ConsumerGroups, NoAnswerError
from services.runtime.kafka import (
    admin_client,
    client_properties,
    ensure_topics,
    idempotent_producer,
)
from services.runtime.settings import ServiceSettings
from tests.integration.kafka_broker import breakable_broker, free_base_port
from tests.integration.service_process import Reader, end_open_run, running_service

pytestmark = pytest.mark.integration

RECORDS, COMMITTED, VALUE = 60, 25, b"x" * 1000
TOPIC, GROUP = "output.metrics.parse", "a-group-that-commits"
DEADLINE_S = 400
BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
LAG = "kafka_consumergroup_lag"


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """A broker and the collector, started as by `up`; the collector scrapes every second."""
    data = tmp_path_factory.mktemp("stack")
    settings = ServiceSettings(data=data, base_port=free_base_port())
    stack = Stack(settings, (KAFKA, service("collector", after=("kafka",))))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TIDEGAUGE_COLLECTOR_SCRAPE_INTERVAL_S", "1")
        try:
            stack.up()
            yield settings
        finally:
            stack.down()


@pytest.fixture(scope="module")
def metrics(stack):
    """The published metrics, after at least one scrape of the broker."""
    reader = Reader(stack, catalogue.METRICS)
    reader.until("", lambda events: series(events, BYTES_IN))
    yield reader
    reader.close()


@pytest.fixture(scope="module")
def produced(stack, metrics):
    """Records in a topic of their own, partly consumed by a group that commits. Returns the bytes
    of all topics before that."""
    before = series(metrics.records(""), BYTES_IN)[0][0]
    ensure_topics(admin_client(stack, "tests"), [catalogue.Topic(TOPIC, ())])
    producer = idempotent_producer(stack, "tests", **{"compression.type": "none"})
    for _ in range(RECORDS):
        producer.produce(TOPIC, VALUE)
    assert producer.flush(30) == 0
    commit(stack, TOPIC, COMMITTED)
    return before


def commit(settings, topic, offset):
    """Commit an offset of partition 0 of a topic for the group."""
    consumer = Consumer(client_properties(settings, "tests") | {"group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def series(events, name, **labels):
    """(value, increase) of each sample of a series, in the order read."""
    return [
        (value, increase)
        for event in events
        for found, told, value, increase in zip(
            event["names"], event["labels"], event["values"], event["increases"], strict=True
        )
        if (found, told) == (name, labels)
    ]


def highest(events, name, **labels):
    return max((value for value, _increase in series(events, name, **labels)), default=0)


def test_what_is_produced_is_counted_and_every_metric_of_the_broker_is_there(metrics, produced):
    of_all, of_topic = (BYTES_IN, {}), (BYTES_IN, {"topic": TOPIC})
    size = ("kafka_log_log_size", {"topic": TOPIC, "partition": "0"})
    events = metrics.until(
        "",
        lambda events: all(highest(events, n, **k) > 60_000 for n, k in (of_all, of_topic, size)),
    )
    # The values, and Kafka's overhead.
    assert highest(events, of_topic[0], **of_topic[1]) < 70_000
    assert highest(events, size[0], **size[1]) < 70_000
    assert highest(events, BYTES_IN) - produced > 60_000
    first, *others = series(events, BYTES_IN)
    assert first == (produced, None)
    assert sum(increase for _value, increase in others) == others[-1][0] - produced
    assert set(METRICS) <= {name for event in events for name in event["names"]}
    assert {event["source"] for event in events if BYTES_IN in event["names"]} == {"broker"}


def test_a_group_is_behind_by_what_was_produced_less_what_it_committed(metrics, produced):
    labels = {"group": GROUP, "topic": TOPIC, "partition": "0"}
    found = metrics.until("", lambda events: series(events, LAG, **labels))
    assert series(found, LAG, **labels)[-1] == (RECORDS - COMMITTED, None)
    assert {event["source"] for event in found if LAG in event["names"]} == {"kafka"}


def test_an_endpoint_that_is_not_there_is_down_and_the_samples_of_processes_go_on(broker, tmp_path):
    nowhere = {"broker": {"url": "http://127.0.0.1:1/metrics", "metrics": ["*"]}}
    targets = {"TIDEGAUGE_COLLECTOR_TARGETS": json.dumps(nowhere)}
    resources, found = Reader(broker, catalogue.RESOURCES), Reader(broker, catalogue.METRICS)
    end_open_run(broker)
    with running_service(broker, "collector", data=tmp_path, **targets) as collector:
        events = found.until(
            "",
            lambda events: (
                (0.0, None) in series(from_source(events, "broker"), "up")
                and (1.0, None) in series(from_source(events, "kafka"), "up")
            ),
        )
        here = len(resources.everything(""))
        resources.until("", lambda events: len(events) >= here + 4)
        assert collector.poll() is None
    assert {name for event in from_source(events, "broker") for name in event["names"]} == {"up"}
    resources.close()
    found.close()


def test_groups_are_known_again_once_a_broker_that_was_killed_is_back(tmp_path):
    with breakable_broker(tmp_path) as broker:
        commit(broker.settings, catalogue.CONTROL, 0)
        groups = ConsumerGroups(lambda: admin_client(broker.settings, "tests"), 2.0)
        before = groups.ask()
        assert [sample.value for sample in before] == [0.0]
        broker.kill()
        with pytest.raises(NoAnswerError, match=r"^Kafka did not answer"):
            groups.ask()
        broker.start()
        broker.await_answer()
        deadline_s, answer = time.monotonic() + DEADLINE_S, []
        while answer != before:  # it loads offsets for a moment after its start
            assert time.monotonic() < deadline_s, answer
            with suppress(NoAnswerError):
                answer = groups.ask()


def from_source(events, name):
    return [event for event in events if event["source"] == name]
