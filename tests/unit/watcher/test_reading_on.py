"""Where a partition is read on that was paused, is truncated, or whose topic was recreated."""

import json

import pytest
from confluent_kafka import KafkaError

from services.watcher.reading import MARGIN_MS, WatchReader
from services.watcher.records import NONE_MS
from services.watcher.troubles import objection
from tests.unit.watcher.clusters import OTHER, PLACE, UNKNOWN, kinds, look, notice

pytestmark = pytest.mark.unit


def hold(reader, cluster, clock):
    """Pause the partition: too many records wait, and another one is behind."""
    reader.read_until(PLACE, 50, 9_000, 9_000)
    cluster.partitions = 2
    look(reader, clock)
    reader.is_full = True
    reader.frontier_ms()
    assert cluster.paused == {PLACE}


def test_a_paused_partition_is_read_on_when_a_partition_is_added(reader, cluster, clock):
    hold(reader, cluster, clock)
    cluster.partitions, reader.is_full = 3, False
    look(reader, clock)
    assert cluster.paused == set()


def test_a_paused_partition_is_read_on_when_its_topic_returns(reader, cluster, clock):
    hold(reader, cluster, clock)
    cluster.describing = UNKNOWN
    look(reader, clock)
    assert cluster.paused == set()
    cluster.describing, reader.is_full = None, False
    look(reader, clock)
    assert (cluster.assigned[PLACE], cluster.paused) == (51, set())


def test_a_paused_partition_whose_offset_is_gone_is_read_on(reader, cluster, clock):
    hold(reader, cluster, clock)
    cluster.low, reader.is_full = 60, False
    cluster.messages = [notice(KafkaError._AUTO_OFFSET_RESET)]
    for _ in range(2):
        list(reader.read(10, 0))
    assert (cluster.assigned[PLACE], cluster.paused) == (60, set())


def test_nothing_is_read_beyond_the_bound_while_ends_are_unknown(reader, cluster, clock):
    cluster.offsets, reader.is_full = OTHER, True
    assert reader.frontier_ms() is None
    assert cluster.paused == {PLACE}
    reader.is_full = False
    assert reader.frontier_ms() is None
    assert cluster.paused == set()


def test_a_producer_that_is_ahead_does_not_stop_a_partition_that_is_never_at_its_end(
    reader, cluster, clock
):
    for offset in (100, 200, 300):
        before_ms = clock.ms
        assert reader.frontier_ms() < before_ms - 1_000
        clock.ms += 1_000
        reader.read_until(PLACE, offset, NONE_MS, clock.ms + 60_000)
        cluster.end = offset + 100
    assert reader.frontier_ms() == before_ms - MARGIN_MS


def test_records_from_a_clock_that_is_ahead_wait_within_the_bound(reader, cluster, clock):
    reader.read_until(PLACE, 50, NONE_MS, clock.ms + 60_000)
    reader.is_full = True
    reader.frontier_ms()
    assert cluster.paused == {PLACE}
    clock.ms += 59_000
    assert reader.frontier_ms() == clock.ms - MARGIN_MS
    assert cluster.paused == {PLACE}
    clock.ms += 2_000
    reader.frontier_ms()
    assert cluster.paused == set()


def lose(reader, cluster):
    """Let the next offset be out of range; returns the problem, if one is reported."""
    cluster.messages = [notice(KafkaError._AUTO_OFFSET_RESET)]
    list(reader.read(10, 0))
    reader.frontier_ms()
    list(reader.read(10, 0))
    (found,) = reader.troubles or [None]
    return found


def test_a_truncated_partition_is_read_on_at_its_end(reader, cluster, clock):
    cluster.end = 30
    told = lose(reader, cluster)
    assert told.kind == "truncated"
    assert told.detail == {"topic": "t", "partition": 0, "first_offset": 42, "next_offset": 30}
    assert objection(told)
    assert reader.positions == cluster.assigned == {PLACE: 30}


def test_a_partition_whose_offset_is_gone_is_not_at_its_end(reader, cluster):
    reader.read_until(PLACE, 50, 5_000, 5_000)
    cluster.end = 30
    cluster.messages = [notice(KafkaError._AUTO_OFFSET_RESET)]
    list(reader.read(10, 0))
    assert reader.frontier_ms() == 5_000


def test_a_truncated_partition_that_has_grown_again_is_read_on_where_it_was(reader, cluster):
    assert lose(reader, cluster) is None
    assert reader.positions == cluster.assigned == {PLACE: 42}


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_partition_of_a_new_topic_is_read_from_its_begin(reader, cluster, clock, is_noticed):
    cluster.id, cluster.end = "another", 30
    if is_noticed:
        look(reader, clock)
        assert kinds(reader) == ["topic_deleted"]
    assert lose(reader, cluster).kind == "topic_appeared"
    assert reader.positions == cluster.assigned == {PLACE: 0}
    reader.read_until(PLACE, 29, 5_000, 5_000)
    look(reader, clock)
    reader.troubles.clear()
    cluster.end = 20
    assert lose(reader, cluster).kind == "truncated"


def test_lost_records_are_not_later_than_the_first_one_that_is_left(reader, cluster, clock):
    cluster.low = 60
    told = lose(reader, cluster)
    assert (told.kind, told.detail["records"]) == ("retention_overtook", 18)
    assert told.until_ms == clock.ms
    reader.read_until(PLACE, 60, 5_000, 5_000)
    reader.read_until(PLACE, 61, 6_000, 6_000)
    assert told.until_ms == 5_000


def resumed(reader, cluster, clock):
    """A reader that resumes where another one was saved."""
    saved = json.loads(json.dumps(reader.saved_topics()))
    found = WatchReader(lambda: cluster, cluster, ("t",), clock)
    found.begin(reader.kept, saved)
    return found


def test_a_topic_that_was_recreated_while_nobody_read_it_is_told_of(reader, cluster, clock):
    cluster.id = "another"
    again = resumed(reader, cluster, clock)
    assert (kinds(again), again.positions) == (["topic_deleted"], {PLACE: 42})
    cluster.end = 30
    assert lose(again, cluster).kind == "topic_appeared"
    assert again.positions == {PLACE: 0}


def test_a_topic_that_is_gone_when_a_watch_resumes_is_told_of_once(reader, cluster, clock):
    cluster.describing = UNKNOWN
    look(reader, clock)
    again = resumed(reader, cluster, clock)
    assert (kinds(again), again.positions, again.kept) == ([], {}, {PLACE: 42})
    cluster.describing, cluster.id = None, "another"
    look(again, clock)
    assert (kinds(again), again.positions) == (["topic_appeared"], {PLACE: 0})


def test_a_position_without_topics_is_read_on(cluster, clock):
    again = WatchReader(lambda: cluster, cluster, ("t",), clock)
    again.begin({PLACE: 42}, None)
    assert (kinds(again), again.positions) == ([], {PLACE: 42})
