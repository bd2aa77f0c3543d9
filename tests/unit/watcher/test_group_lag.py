"""Lag of consumer groups, with a cluster that answers when the test wants."""

import threading
from types import SimpleNamespace

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition

from services.watcher.cluster import GroupLagReader
from tests.unit.watcher.clusters import answer

pytestmark = pytest.mark.unit


class Groups:
    """Groups at offset 40 of a partition that ends at 42. error: returned for the group `b`."""

    def __init__(self):
        self.error, self.may_answer = None, threading.Event()

    def list_consumer_group_offsets(self, asked, request_timeout):
        assert self.may_answer.wait(10)
        (group,) = (one.group_id for one in asked)
        found = ConsumerGroupTopicPartitions(group, [TopicPartition("t", 0, 40)])
        return {group: answer(found, self.error if group == "b" else None)}

    def list_offsets(self, asked, request_timeout):
        return {place: answer(SimpleNamespace(offset=42), None) for place in asked}


def asked(lag):
    """The answer to one request."""
    lag.ask()
    lag._asked.exception(10)
    return lag.answer()


def told(lag):
    found, lag.troubles = [one.detail["group"] for one in lag.troubles], []
    return found


def test_groups_that_do_not_answer_delay_nothing_else():
    groups = Groups()
    lag = GroupLagReader(groups, ("a", "b"))
    lag.ask()
    lag.ask()
    assert lag.answer() is None
    groups.may_answer.set()
    found = asked(lag)
    assert found["values"] == [2.0, 2.0]
    assert found["labels"][0] == {"group": "a", "topic": "t", "partition": "0"}
    assert lag.answer() is None


def test_a_group_that_is_not_read_is_told_of_once_until_it_answers():
    groups = Groups()
    groups.may_answer.set()
    groups.error = KafkaError.GROUP_AUTHORIZATION_FAILED
    lag = GroupLagReader(groups, ("a", "b"))
    assert [len(asked(lag)["values"]) for _ in range(2)] == [1, 1]
    assert told(lag) == ["b"]
    groups.error = None
    assert len(asked(lag)["values"]) == 2
    groups.error = KafkaError.GROUP_AUTHORIZATION_FAILED
    asked(lag)
    assert told(lag) == ["b"]
