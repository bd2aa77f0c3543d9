"""The lag of consumer groups."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from services.collector.sources import ConsumerGroups, NoAnswerError, Sample, lags

pytestmark = pytest.mark.unit


def lag(group, topic, partition, value):
    labels = {"group": group, "topic": topic, "partition": partition}
    return Sample("kafka_consumergroup_lag", labels, "gauge", value)


def test_the_lag_is_the_end_less_what_was_committed_by_group_and_partition():
    committed = {"b": {("t", 1): 4}, "a": {("t", 0): 7, ("s", 0): 0}}
    ends = {("t", 0): 10, ("t", 1): 4, ("s", 0): 2}
    assert lags(committed, ends) == [
        lag("a", "s", "0", 2.0),
        lag("a", "t", "0", 3.0),
        lag("b", "t", "1", 0.0),
    ]


def test_a_commit_newer_than_the_end_that_was_asked_before_it_is_no_negative_lag():
    assert lags({"a": {("t", 0): 11}}, {("t", 0): 10}) == [lag("a", "t", "0", 0.0)]


def test_nothing_is_said_where_nothing_was_committed_or_the_topic_is_gone():
    no_offset = -1001
    assert lags({"a": {("t", 0): no_offset, ("gone", 0): 5}, "b": {}}, {("t", 0): 10}) == []


def test_a_broker_that_is_away_while_groups_are_listed_is_no_answer():
    answer = Future()
    answer.set_result(SimpleNamespace(errors=[KafkaError(KafkaError._TIMED_OUT)], valid=[]))
    admin = SimpleNamespace(list_consumer_groups=lambda **_: answer)
    with pytest.raises(NoAnswerError, match="Kafka did not answer"):
        ConsumerGroups(lambda: admin, 1.0).ask()
