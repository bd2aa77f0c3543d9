"""Whether kept pipelines have answered the probe traffic of a run, as seen on a real broker."""

import time
from contextlib import closing

import pytest
from confluent_kafka import Producer

from schemas.catalogue import Topic
from schemas.protocol import probe_run_id
from services.conductor.probe_outputs import ProbeOutputs
from services.runtime.kafka import admin_client, client_properties, ensure_topics

pytestmark = pytest.mark.integration

WAIT_S = 60


def unanswered(watch):
    """The topics of which it is not known, once they were read."""
    time.sleep(watch.INTERVAL_S)  # it looks once in so long
    return watch.look()


def test_outputs_of_the_run_before_show_that_a_pipeline_has_not_caught_up(broker):
    topics = ("probed.parse", "probed.windows")
    ensure_topics(admin_client(broker, "tests"), [Topic(name, (), partitions=2) for name in topics])
    producer = Producer(client_properties(broker, "tests") | {"linger.ms": 0})

    def publish(topic, run_id, count, partition=0):
        for _ in range(count):
            producer.produce(topic, f"..{run_id}..".encode(), partition=partition)
        assert producer.flush(WAIT_S) == 0

    publish("probed.parse", "r1-step-01", 3)
    starts = {"probed.parse": (3, 0), "probed.windows": (0, 0)}
    probe = probe_run_id("r1-step-02")
    with closing(ProbeOutputs(broker, starts, "r1-step-02")) as watch:
        assert unanswered(watch) == list(topics)
        publish("probed.parse", "r1-step-01", 50)
        publish("probed.windows", probe, 1)
        await_only(watch, "probed.parse")
        publish("probed.parse", probe, 5)  # of a partition that is ahead of the others
        assert unanswered(watch) == ["probed.parse"]
        publish("probed.parse", "r1-step-01", 1, partition=1)
        publish("probed.parse", probe, watch.NEWEST)
        assert unanswered(watch) == ["probed.parse"]
        publish("probed.parse", probe, watch.NEWEST, partition=1)
        await_only(watch)


def await_only(watch, *topics):
    """Wait until nothing but these topics is awaited."""
    end_s = time.monotonic() + WAIT_S
    while unanswered(watch) != list(topics):
        assert time.monotonic() < end_s, watch.unsteady
