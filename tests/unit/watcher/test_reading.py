"""A reader of topics, with a cluster whose responses are in a table."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from services.watcher.reading import WatchReader
from services.watcher.records import NONE_MS

pytestmark = pytest.mark.unit

UNKNOWN = KafkaError.UNKNOWN_TOPIC_OR_PART
REFUSED = KafkaError.TOPIC_AUTHORIZATION_FAILED
OTHER = KafkaError.REQUEST_TIMED_OUT
PLACE = ("t", 0)


class Cluster:
    """A topic `t` of one partition. id: of the topic; describing, offsets: the error returned to
    each request, or None."""

    def __init__(self):
        self.id, self.end = "one", 100
        self.describing = self.offsets = None
        self.assigned, self.messages = {}, []

    # as the administrator

    def describe_topics(self, asked, request_timeout):
        (topic,) = asked.topic_names
        leader = SimpleNamespace(id=1)
        partitions = [SimpleNamespace(id=0, leader=leader)]
        found = SimpleNamespace(topic_id=self.id, partitions=partitions)
        return {topic: answer(found, self.describing)}

    def list_offsets(self, asked, isolation_level, request_timeout):
        return {
            place: answer(SimpleNamespace(offset=self.end), self.offsets or self.describing)
            for place in asked
        }

    # as the consumer

    def assign(self, places):
        self.assigned = {(one.topic, one.partition): one.offset for one in places}

    def consume(self, _most, _timeout_s):
        taken, self.messages = self.messages, []
        return taken

    def close(self):
        self.assigned = {}


def answer(value, error):
    found = Future()
    if error is None:
        found.set_result(value)
    else:
        found.set_exception(KafkaException(KafkaError(error)))
    return found


def notice(code):
    """An error reported by the client for the partition."""
    return Message("t", 0, 0, None, None, None, KafkaError(code), None, 0)


class Time:
    """Advanced by the test only."""

    ms = 1_000_000

    def __call__(self):
        return self.ms


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def reader(cluster, clock):
    found = WatchReader(lambda: cluster, cluster, ("t",), clock)
    found.begin({PLACE: 42})
    return found


def kinds(reader):
    found = [one.kind for one in reader.troubles]
    reader.troubles.clear()
    return found


def look(reader, clock):
    clock.ms += 10_000
    return reader.frontier_ms()


def test_a_topic_that_was_not_there_for_a_moment_is_read_on_where_it_was(reader, cluster, clock):
    cluster.describing = UNKNOWN
    look(reader, clock)
    assert (kinds(reader), reader.positions) == (["topic_deleted"], {})
    assert reader.kept == {PLACE: 42}
    cluster.describing = None
    look(reader, clock)
    assert (kinds(reader), reader.positions) == (["topic_appeared"], {PLACE: 42})
    assert cluster.assigned == {PLACE: 42}


def test_a_new_topic_of_the_same_name_is_read_from_its_begin(reader, cluster, clock):
    cluster.describing = UNKNOWN
    look(reader, clock)
    kinds(reader)
    cluster.describing, cluster.id = None, "another"
    look(reader, clock)
    assert (kinds(reader), reader.positions) == (["topic_appeared"], {PLACE: 0})
    assert (cluster.assigned, reader.kept) == ({PLACE: 0}, {PLACE: 0})


def test_nothing_is_read_again_where_a_new_topic_came_unnoticed(reader, cluster, clock):
    cluster.id = "another"
    look(reader, clock)
    assert (kinds(reader), reader.positions) == (["topic_deleted"], {PLACE: 42})
    look(reader, clock)
    assert kinds(reader) == []


@pytest.mark.parametrize("error", [REFUSED, OTHER])
def test_a_topic_that_is_not_described_for_another_reason_is_not_gone(
    reader, cluster, clock, error
):
    cluster.describing = error
    look(reader, clock)
    assert "topic_deleted" not in kinds(reader)
    assert reader.positions == {PLACE: 42}


def test_a_cluster_that_refuses_is_told_of_once(reader, cluster, clock):
    cluster.describing = REFUSED
    look(reader, clock)
    cluster.messages = [notice(REFUSED), notice(KafkaError.GROUP_AUTHORIZATION_FAILED)]
    list(reader.read(10, 0))
    (told,) = reader.troubles
    assert (told.kind, told.detail["topic"], told.detail["code"]) == (
        *("not_readable", "t", "TOPIC_AUTHORIZATION_FAILED"),
    )


def test_a_refusal_to_send_records_is_told_of(reader, cluster):
    cluster.messages = [notice(REFUSED), notice(REFUSED)]
    list(reader.read(10, 0))
    assert kinds(reader) == ["not_readable"]


def test_a_cluster_that_says_nothing_for_long_is_told_of_until_it_does(reader, cluster, clock):
    cluster.offsets = OTHER
    for _ in range(3):
        assert look(reader, clock) is None
    assert kinds(reader) == []
    look(reader, clock)
    look(reader, clock)
    (told,) = reader.troubles
    assert told.kind == "not_readable"
    assert told.detail["reason"].startswith("it has returned no end offsets for 30 s: ")
    assert kinds(reader) == ["not_readable"]
    cluster.offsets = None
    assert look(reader, clock) is not None
    cluster.offsets = OTHER
    for _ in range(4):
        look(reader, clock)
    assert kinds(reader) == ["not_readable"]


def test_a_record_whose_time_cannot_be_says_nothing_of_how_far_a_partition_was_read(reader, clock):
    reader.read_until(PLACE, 50, 7_000)
    reader.read_until(PLACE, 51, NONE_MS)
    assert reader.positions == {PLACE: 52}
    assert reader.frontier_ms() == 7_000
