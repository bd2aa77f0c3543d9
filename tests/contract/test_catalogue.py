"""The topics that all services rely on."""

import pytest

from schemas import catalogue
from services.runtime.kafka import topic_config
from tests.traffic import input_topics, output_topics

pytestmark = pytest.mark.contract


@pytest.mark.parametrize(
    "topic",
    [*input_topics(), *output_topics("spark-realtime")],
    ids=lambda topic: topic.name,
)
def test_input_and_output_topics_take_their_time_from_the_broker(topic):
    assert topic_config(topic)["message.timestamp.type"] == "LogAppendTime"


def test_a_pipeline_has_one_output_topic_per_stage():
    assert [topic.name for topic in output_topics("p")] == [
        "output.p.ingest",
        "output.p.parse",
        "output.p.join",
        "output.p.tumbling",
        "output.p.sliding",
    ]


def test_a_pipeline_has_output_topics_of_the_stages_asked_for_only():
    topics = output_topics("p", ("join",), partitions=4)
    assert [(topic.name, topic.records, topic.partitions) for topic in topics] == [
        ("output.p.join", ("output_join",), 4)
    ]


def test_the_fixed_topics_are_these():
    assert [topic.name for topic in catalogue.fixed_topics()] == [
        "control.runs",
        "dead-letter",
        "results.lifecycle",
        "results.latency",
        "results.throughput",
        "results.verdicts",
        "results.generator",
        "results.pipeline",
        "results.resources",
        "results.conclusions",
        "results.pairs",
        "results.metrics",
        "results.slices",
        "results.fetches",
    ]


def test_input_topics_are_those_of_the_domain_with_partitions_as_asked_for():
    assert [(topic.name, topic.records, topic.partitions) for topic in input_topics(8)] == [
        ("traffic.flow", ("traffic_flow",), 8),
        ("traffic.speed", ("traffic_speed",), 8),
    ]


def test_every_topic_is_bounded():
    for topic in (*catalogue.fixed_topics(), *input_topics(), *output_topics("p")):
        assert topic.retention_s > 0, topic.name
        assert topic.retention_bytes > 0, topic.name


def test_results_stay_as_long_and_as_large_as_asked_for():
    topics = {topic.name: topic for topic in catalogue.fixed_topics(7, 16)}
    for name in (*catalogue.RESULTS, catalogue.DEAD_LETTER):
        assert topics[name].retention_s == 604_800
        assert topics[name].retention_bytes == 16_777_216
    assert topics[catalogue.CONTROL] == catalogue.fixed_topics()[0]
