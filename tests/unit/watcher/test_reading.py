"""A reader of topics, with a cluster whose responses are in a table."""

import numpy as np
import pytest
from confluent_kafka import KafkaError

from services.runtime.kafka import KafkaUnavailableError
from services.runtime.transactions import UNKNOWN_MS, TransactionsLostError
from services.watcher.reading import MARGIN_MS, WatchReader
from services.watcher.records import NONE_MS
from services.watcher.troubles import objection
from tests.unit.watcher.clusters import OTHER, PLACE, REFUSED, UNKNOWN, kinds, look, notice
from tests.unit.watcher.records import message

pytestmark = pytest.mark.unit


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
    reader.read_until(PLACE, 50, 7_000, 7_000)
    reader.read_until(PLACE, 51, NONE_MS, NONE_MS)
    assert reader.positions == {PLACE: 52}
    assert reader.frontier_ms() == 7_000


def test_a_notice_of_the_end_stays_where_no_record_is_before_it(reader, cluster, clock):
    cluster.end = 51  # after the marker of a transaction
    cluster.messages = [notice(KafkaError._PARTITION_EOF, 51), message("t", ms=5_000, offset=49)]
    ((_, (one,)),) = reader.read(10, 0)
    reader.read_until(PLACE, one.offset(), 5_000, 5_000)
    assert reader.positions == {PLACE: 51}
    assert reader.frontier_ms() > 5_000


def test_records_of_an_open_transaction_are_not_counted_as_read(reader, cluster, clock):
    cluster.stable, cluster.end = 51, 60
    reader.read_until(PLACE, 50, 5_000, 5_000)
    for _ in range(2):
        clock.ms += 1_000
        assert reader.frontier_ms() == 5_000
    assert reader.ends() == {PLACE: 51}
    cluster.messages = [notice(KafkaError._PARTITION_EOF, 60)]  # after the marker of the commit
    list(reader.read(10, 0))
    assert reader.frontier_ms() == clock.ms - MARGIN_MS


class Commits:
    """Reads transactions of PLACE until an error."""

    def __init__(self, *errors, has_read=True):
        self.errors, self.has_read = list(errors), has_read
        self.begun, self.read, self.is_closed = {}, [], False

    def begin(self, place, offset):
        self.begun[place] = offset

    def restore(self, _saved):
        pass

    def read_to(self, ends):
        if self.errors:
            raise self.errors.pop()
        self.read.append(dict(ends))

    def has_transactions(self, place):
        return place == PLACE

    def visible_ms(self, _place, offsets):
        return np.where(offsets < 50, UNKNOWN_MS, offsets + 1_000)

    def close(self):
        self.is_closed = True


@pytest.fixture
def reading(cluster, clock):
    """A reader whose topic is one of outputs, with these readers of transactions."""

    def begun(commits):
        found = WatchReader(
            lambda: cluster, cluster, ("t",), clock, outputs=("t",), commits=commits
        )
        found.begin({PLACE: 42})
        return found

    return begun


def test_transactions_are_read_as_far_as_records(reading, cluster):
    commits = Commits()
    reader = reading(commits)
    cluster.messages = [message("t", offset=49), message("t", offset=51)]
    ((topic, messages),) = reader.read(10, 0)
    assert (commits.begun, commits.read) == ({PLACE: 42}, [{PLACE: 52}])
    assert reader.visible_ms(topic, messages).tolist() == [NONE_MS, 1_051]
    assert reader.visible_ms("another", messages).tolist() == [NONE_MS, NONE_MS]


def test_transactions_that_the_log_has_no_more_are_told_of(reading, cluster):
    commits = Commits(TransactionsLostError([PLACE], "they were removed"))
    reader = reading(commits)
    cluster.messages = [message("t", offset=51)]
    assert len(list(reader.read(10, 0))) == 1
    assert (commits.begun, commits.read) == ({PLACE: 52}, [{PLACE: 52}])
    (told,) = reader.troubles
    assert told.kind == "transactions_unknown"
    assert "t, partition 0, cannot be read: they were removed" in told.detail["reason"]
    assert objection(told) == ""


def test_a_watch_goes_on_without_transactions_that_it_could_never_read(reading, cluster):
    commits = Commits(KafkaUnavailableError("no"), has_read=False)
    reader = reading(commits)
    cluster.messages = [message("t", offset=51)]
    ((topic, messages),) = reader.read(10, 0)
    assert (kinds(reader), commits.is_closed) == (["transactions_unknown"], True)
    assert reader.visible_ms(topic, messages).tolist() == [NONE_MS]
    assert (reader.take_aborted(), reader.saved_topics()["transactions"]) == ({}, [])


def test_a_cluster_that_no_longer_answers_ends_the_reading(reading):
    reader = reading(Commits(KafkaUnavailableError("no")))
    with pytest.raises(KafkaUnavailableError):
        list(reader.read(10, 0))


def test_a_new_topic_of_the_same_name_has_transactions_of_its_own(reading, cluster, clock):
    commits = Commits()
    reader = reading(commits)
    reader.read_until(PLACE, 50, 5_000, 5_000)
    cluster.id = "another"
    look(reader, clock)
    assert commits.begun == {PLACE: 51}
