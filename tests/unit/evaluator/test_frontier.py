"""How far the evaluator has read, and its reported lag."""

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message

from services.evaluator.run.reader import Frontier, Reader

pytestmark = pytest.mark.unit


def test_the_topic_that_is_read_least_far_says_how_far_behind_reading_is():
    assert Frontier(1_700, 1_900, {}).behind_ms(now_ms=2_000, since_ms=1_000) == 300
    assert Frontier(1_900, 1_700, {}).behind_ms(now_ms=2_000, since_ms=1_000) == 300


def test_a_topic_that_was_not_read_yet_is_as_far_behind_as_reading_has_gone_on():
    assert Frontier(0, 1_900, {}).behind_ms(now_ms=2_000, since_ms=1_950) == 50


def test_reading_that_caught_up_since_it_was_asked_is_not_behind():
    assert Frontier(2_001, 2_001, {}).behind_ms(now_ms=2_000, since_ms=1_000) == 0


def record(offset: int, appended_ms: int) -> Message:
    time = (TIMESTAMP_LOG_APPEND_TIME, appended_ms)
    return Message(topic="in", partition=0, offset=offset, value=b"", timestamp=time)


def report(offset: int, error: KafkaError) -> Message:
    """Of the end of a partition, or of an error."""
    return Message(topic="in", partition=0, offset=offset, error=error)


class Messages:
    """A consumer of these messages."""

    def __init__(self) -> None:
        self.next: list[Message] = []

    def assign(self, places):
        pass

    def consume(self, records, timeout_s):
        found, self.next = self.next, []
        return found


@pytest.fixture
def consumer():
    return Messages()


END = KafkaError(KafkaError._PARTITION_EOF)


def test_a_marker_of_a_transaction_at_the_end_is_read(consumer):
    """The record has offset 9, the marker 10, and nothing follows."""
    found = Reader(consumer, lambda _: {("in", 0): 11}, {"in": (9,)}, ("in",), lambda: 5_000)
    consumer.next = [record(9, 1_000)]
    assert len(found.read(10, 1)) == 1
    assert found.frontier().input_ms == 1_000
    consumer.next = [report(11, END)]
    assert found.read(10, 1) == []
    assert found.frontier() == Frontier(5_000, 5_000, {("in", 0): 11})


def test_a_notice_of_the_end_before_the_records_of_the_same_read_does_not_move_back(consumer):
    found = Reader(consumer, lambda _: {("in", 0): 11}, {"in": (9,)}, ("in",), lambda: 5_000)
    consumer.next = [report(11, END), record(9, 1_000)]
    found.read(10, 1)
    assert found.frontier().positions == {("in", 0): 11}


def test_a_record_that_has_just_come_is_not_as_late_as_the_record_before_it(consumer):
    now, end = [100_100], [1]
    found = Reader(consumer, lambda _: {("in", 0): end[0]}, {"in": (0,)}, ("in",), lambda: now[0])
    consumer.next = [record(0, 100_000)]
    found.read(10, 1)
    now[0] = 159_900
    assert found.frontier().input_ms == 159_900
    now[0], end[0] = 160_100, 2  # a record was appended at 160,000 ms, and is not read yet
    assert found.frontier().behind_ms(now[0], since_ms=0) == 200


def test_a_clock_that_is_ahead_of_the_brokers_does_not_move_the_frontier_ahead(consumer):
    """It is 1,000 ms ahead. A record that was there before says nothing about it."""
    now, end = [101_000], [1]
    found = Reader(consumer, lambda _: {("in", 0): end[0]}, {"in": (0,)}, ("in",), lambda: now[0])
    assert found.frontier().input_ms == 0
    consumer.next = [record(0, 60_000)]
    found.read(10, 1)
    assert found.frontier().input_ms == 101_000
    for number, (transit_ms, least_ms) in enumerate([(20, 20), (5, 5), (300, 5)], start=1):
        now[0], end[0] = 101_000 + 10_000 * number, number + 1
        consumer.next = [record(number, now[0] - 1_000 - transit_ms)]
        found.read(10, 1)
        assert found.frontier().input_ms == now[0] - 1_000 - least_ms


def test_an_error_that_does_not_pass_is_raised(consumer):
    found = Reader(consumer, lambda _: {}, {"in": (0,)}, ("in",))
    consumer.next = [report(0, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))]
    with pytest.raises(KafkaException):
        found.read(10, 1)
