"""Clock offsets of brokers, estimated from the delays of records."""

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME

from services.watcher.cluster import MOST_BEHIND_MS, SPAN_MS, BrokerClocks
from services.watcher.watching import said_of_times
from tests.unit.watcher.clusters import PLACE
from tests.unit.watcher.records import message

pytestmark = pytest.mark.unit

NOW = 10_000_000
HOUR_MS = 3_600_000


def saw(clocks, leader, took_ms, now=NOW, is_stamp=True, is_fresh=True):
    clocks.saw(leader, now - took_ms, now, is_stamp, is_fresh)


def test_the_clocks_of_brokers_differ_by_their_least_delays():
    clocks = BrokerClocks()
    for leader, took_ms in ((1, 90), (1, 40), (2, 1_240), (2, 1_300)):
        saw(clocks, leader, took_ms)
    assert (clocks.difference_ms(), clocks.behind_ms()) == (1_200, 1_240)


def test_a_backlog_and_the_times_of_producers_say_nothing_of_clocks():
    clocks = BrokerClocks()
    saw(clocks, 1, 40)
    saw(clocks, 2, HOUR_MS, is_fresh=False)
    saw(clocks, 3, HOUR_MS, is_stamp=False)
    assert (clocks.difference_ms(), clocks.leaders()) == (None, [1, 2])
    assert clocks.behind_ms() == MOST_BEHIND_MS
    saw(clocks, 2, 60)
    assert clocks.difference_ms() == 20


def test_a_clock_that_is_set_back_is_noticed():
    clocks = BrokerClocks()
    for minute in range(4):
        saw(clocks, 1, 40, NOW + minute * SPAN_MS)
        saw(clocks, 2, 40 if minute < 2 else 3_040, NOW + minute * SPAN_MS)
    assert (clocks.difference_ms(), clocks.behind_ms()) == (3_000, 3_040)


def take(reader, clock, *took_ms, **fields):
    """Read records with consecutive offsets; the delays are of the last ones of a batch."""
    first = reader.positions[PLACE]
    times = [clock.ms - took for took in took_ms]
    reader.consumer.messages = [
        message("t", ms=ms, offset=first + n, **fields) for n, ms in enumerate(times)
    ]
    for _, batch in reader.read(100, 0):
        reader.read_until(PLACE, batch[-1].offset(), times[-1], times[-1])


def estimates(reader):
    return [one.ms for one in reader.clocks._fresh.values()]


def test_a_record_is_fresh_if_it_was_appended_after_the_ends_were_asked_for(reader, cluster, clock):
    take(reader, clock, 9_000)
    cluster.end = 44
    reader.frontier_ms()
    take(reader, clock, 8_000)  # the offset 43 was there
    assert estimates(reader) == []
    take(reader, clock, 70, 50)
    assert estimates(reader) == [50]
    assert reader.clocks.leaders() == [1]


def test_a_record_is_not_fresh_long_after_the_ends_were_asked_for(reader, cluster, clock):
    cluster.end = 42
    reader.frontier_ms()
    clock.ms += 60_000
    take(reader, clock, 50_000)
    assert estimates(reader) == []


def test_a_time_of_a_producer_is_no_estimate(reader, cluster, clock):
    cluster.end = 42
    reader.frontier_ms()
    take(reader, clock, 50, kind=TIMESTAMP_CREATE_TIME)
    assert (estimates(reader), reader.clocks.leaders()) == ([], [])


def test_every_partition_of_a_batch_counts(reader, cluster, clock):
    cluster.partitions, cluster.end = 2, 42
    for _ in range(2):
        clock.ms += 10_000
        reader.frontier_ms()
    reader._places["t", 1].leader = 2
    reader.consumer.messages = [
        message("t", ms=clock.ms - took_ms, partition=partition, offset=42)
        for partition, took_ms in ((1, 1_240), (0, 40))
    ]
    list(reader.read(100, 0))
    assert reader.clocks.difference_ms() == 1_200


@pytest.mark.parametrize(
    ("times", "leaders", "apart_ms", "said"),
    [
        ({}, [], None, "No record with a timestamp was read."),
        ({"in": {"none"}}, [], None, "No record with a timestamp was read."),
        ({"in": {"LogAppendTime"}}, [1], None, "All timestamps are LogAppendTime from one broker."),
        ({"in": {"LogAppendTime"}}, [1, 2], 7, "2 brokers, which seem 7 ms apart"),
        ({"in": {"LogAppendTime"}}, [1, 2], None, "2 brokers, whose difference was not measured"),
        ({"in": {"LogAppendTime"}, "out": {"CreateTime"}}, [1], None, "out are CreateTime"),
    ],
)
def test_a_statement_about_times_says_only_what_was_seen(times, leaders, apart_ms, said):
    assert said in said_of_times(times, leaders, apart_ms)
