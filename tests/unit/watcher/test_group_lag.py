"""Lag of consumer groups, with a cluster that answers when the test wants."""

import threading
from types import SimpleNamespace

import pytest
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from services.watcher.group_lag import (
    CATCH_UP_S,
    LAG_S,
    MAX_SAMPLES,
    MOST_UNKNOWN_MS,
    NEXT_RECORD,
    NO_ANSWER,
    OFFSET,
    GroupLagReader,
    ObservedGroup,
    PartitionLag,
    Progress,
)
from tests.unit.watcher.clusters import answer

pytestmark = pytest.mark.unit
LAG = "kafka_consumergroup_lag"


class Groups:
    """Groups at offset 40 of a partition that ends at 42, whose next record is of 1.000 s. error:
    returned for the group `b`; unread: raised instead of records; there: whether these exist."""

    def __init__(self):
        self.error, self.may_answer, self.unread = None, threading.Event(), None
        self.offset, self.end, self.there, self.within = 40, 42, True, True

    def list_consumer_group_offsets(self, asked, request_timeout):
        assert self.may_answer.wait(10)
        (group,) = (each.group_id for each in asked)
        places = [TopicPartition("t", 0, self.offset), TopicPartition("t", 1, -1001)]
        result = ConsumerGroupTopicPartitions(group, places)
        return {group: answer(result, self.error if group == "b" else None)}

    def list_offsets(self, asked, request_timeout):
        return {place: answer(SimpleNamespace(offset=self.end), None) for place in asked}

    def describe_consumer_groups(self, groups, request_timeout):
        assignment = SimpleNamespace(topic_partitions=[TopicPartition("t", 0)])
        members = [
            SimpleNamespace(member_id=f"{groups[0]}-1", assignment=assignment),
            SimpleNamespace(member_id="idle", assignment=None),
        ]
        return {groups[0]: answer(SimpleNamespace(members=members), None)}

    def read(self, offsets, within_s):
        if self.unread:
            raise self.unread
        if not self.within:
            return {}
        record = SimpleNamespace(timestamp=lambda: (TIMESTAMP_LOG_APPEND_TIME, 1_000))
        return dict.fromkeys(offsets, record if self.there else None)


@pytest.fixture
def groups():
    result = Groups()
    result.may_answer.set()
    return result


def reader_of(groups, clock=lambda: 1_250):
    return GroupLagReader(groups, groups, ("a", "b"), clock)


def asked(lag):
    """The answer to one request."""
    lag.ask()
    lag._asked.exception(10)
    return lag.answer()


def told(lag):
    result, lag.troubles = [each.detail["group"] for each in lag.troubles], []
    return result


def samples(group):
    """Value by name of the series of a group's only partition."""
    (event,) = group.events()
    place = {"group": group.group, "topic": "t", "partition": "0", "member": f"{group.group}-1"}
    assert all(labels == place for labels in event["labels"])
    return dict(zip(event["names"], event["values"], strict=True))


def test_groups_that_do_not_answer_delay_nothing_else():
    groups = Groups()
    lag = reader_of(groups)
    lag.ask()
    lag.ask()
    assert lag.answer() == []
    groups.may_answer.set()
    first, second = asked(lag)
    assert (first.group, second.group) == ("a", "b")
    assert samples(first)[LAG] == samples(second)[LAG] == 2.0
    assert lag.answer() == []


def test_groups_whose_request_hangs_are_told_of_once_until_they_answer():
    groups, times = Groups(), [0]
    lag = reader_of(groups, lambda: times[-1])
    lag.ask()
    for time_ms in (MOST_UNKNOWN_MS, MOST_UNKNOWN_MS + 1, 2 * MOST_UNKNOWN_MS):
        times.append(time_ms)
        lag.ask()
    assert [each.detail["reason"] for each in lag.troubles] == [NO_ANSWER, NO_ANSWER]
    assert told(lag) == ["a", "b"]
    groups.may_answer.set()
    assert len(asked(lag)) == 2
    groups.may_answer.clear()
    lag.ask()
    assert told(lag) == []
    times.append(times[-1] + MOST_UNKNOWN_MS + 1)
    lag.ask()
    assert told(lag) == ["a", "b"]
    groups.may_answer.set()


def test_a_group_that_is_not_read_is_told_of_once_until_it_answers(groups):
    groups.error = KafkaError.GROUP_AUTHORIZATION_FAILED
    lag = reader_of(groups)
    assert [len(asked(lag)) for _ in range(2)] == [1, 1]
    assert told(lag) == ["b"]
    groups.error = None
    assert len(asked(lag)) == 2
    groups.error = KafkaError.GROUP_AUTHORIZATION_FAILED
    asked(lag)
    assert told(lag) == ["b"]


def test_a_group_is_behind_by_the_age_of_the_record_that_it_reads_next(groups):
    group, _ = asked(reader_of(groups))
    assert samples(group) == {LAG: 2.0, OFFSET: 40.0, NEXT_RECORD: 1.0, LAG_S: 0.25}
    (event,) = group.events()
    assert event["time"] == 1_250


def test_a_group_with_nothing_left_to_read_is_not_behind(groups):
    """Also if markers of transactions are left; and without a fetch if nothing at all is."""
    groups.there = False
    group, _ = asked(reader_of(groups))
    assert samples(group) == {LAG: 2.0, OFFSET: 40.0, LAG_S: 0.0}
    groups.offset, groups.unread = 42, AssertionError("it must not be read")
    lag = reader_of(groups)
    groups.there = True
    lag.next_records = SimpleNamespace(read=lambda offsets, _: dict.fromkeys(offsets))
    group, _ = asked(lag)
    assert samples(group) == {LAG: 0.0, OFFSET: 42.0, LAG_S: 0.0, CATCH_UP_S: 0.0}


def test_a_record_that_was_not_read_in_time_has_no_age(groups):
    groups.within = False
    group, _ = asked(reader_of(groups))
    assert samples(group) == {LAG: 2.0, OFFSET: 40.0}


def test_a_topic_that_must_not_be_read_has_a_lag_in_records_and_is_told_of(groups):
    groups.unread = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    lag = reader_of(groups)
    assert [samples(each) for each in asked(lag)] == 2 * [{LAG: 2.0, OFFSET: 40.0}]
    assert [each.detail for each in lag.troubles] == [
        {
            "group": group,
            "reason": "the record that it reads next: Broker: Topic authorization failed",
        }
        for group in ("a", "b")
    ]


def test_it_has_caught_up_when_it_gained_on_the_end_long_enough():
    progress = Progress()
    progress.add(0, 100, 1_000)
    assert progress.catch_up_s() is None  # no rate yet
    progress.add(5_000, 300, 1_050)
    assert progress.catch_up_s() is None
    progress.add(10_000, 500, 1_100)  # reads 40 per second, 10 arrive: 600 are left
    assert progress.catch_up_s() == 20.0
    progress.add(20_000, 500, 1_200)  # 20 and 10: 700 are left
    assert progress.catch_up_s() == 70.0
    progress.add(75_000, 500, 1_750)  # those of the last minute: it stands since 10 s
    assert progress.catch_up_s() is None
    progress.add(80_000, 1_750, 1_750)
    assert progress.catch_up_s() == 0.0


def test_rates_begin_anew_when_an_offset_is_reset():
    progress = Progress()
    progress.add(0, 100, 1_000)
    progress.add(20_000, 900, 1_000)
    assert progress.catch_up_s() == 2.5
    progress.add(25_000, 100, 1_000)
    assert progress.catch_up_s() is None
    progress.add(45_000, 300, 1_000)
    assert progress.catch_up_s() == 70.0


def test_of_the_partitions_of_a_topic_the_longest_times_count_and_none_if_one_is_unknown():
    parts = (
        PartitionLag("t", 0, "", 5, 3, 1_000, 250, 1.5),
        PartitionLag("t", 1, "", 5, 4, 500, 750, None),
        PartitionLag("u", 0, "", 5, 2, None, None, 2.0),
        PartitionLag("u", 1, "", 5, 2, 1_249, 1, 3.0),
    )
    first, second = ObservedGroup("g", 1_250, parts).topics()
    assert (first.records, first.behind_s, first.catch_up_s) == (7, 0.75, None)
    assert (second.records, second.behind_s, second.catch_up_s) == (4, None, 3.0)


def test_an_event_has_a_limited_number_of_samples():
    parts = tuple(PartitionLag("t", number, "", 5, 0, None, 0, 0.0) for number in range(300))
    events = list(ObservedGroup("g", 1_250, parts).events())
    assert [len(event["names"]) for event in events] == [MAX_SAMPLES, 200]
    assert sum(event["names"].count(LAG) for event in events) == 300
