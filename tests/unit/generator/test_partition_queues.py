"""Messages wait for their partition's turn while others are in flight."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.generator import librdkafka
from services.generator.batch_producer import (
    KeyPartitions,
    PartitionQueues,
    by_partition,
    joined,
)
from services.generator.message_batch import MESSAGE, MessageBatch

pytestmark = pytest.mark.unit

NO_RECORDS = (np.zeros(0, kind) for kind in ("<i8", "<i4", "i1"))
NO_BATCH = MessageBatch("t", *NO_RECORDS, np.zeros(0, MESSAGE))


def numbered(first, count):
    messages = np.zeros(count, MESSAGE)
    messages["private"] = np.arange(first, first + count)
    messages["value_bytes"] = 7
    return messages


def test_no_more_partitions_are_under_way_than_places():
    queues = PartitionQueues(2, batch_records=10, timeout_s=30)
    for partition in range(4):
        queues.put(("t", partition), NO_BATCH, numbered(0, 1))
    assert [queues.take()[0], queues.take()[0]] == [("t", 0), ("t", 1)]
    assert queues.take() is None
    queues.done(("t", 1), 1)
    assert queues.take()[0] == ("t", 2)
    assert queues.take() is None


def test_messages_pass_unless_others_wait_or_are_under_way():
    queues = PartitionQueues(2, batch_records=10, timeout_s=30)
    assert queues.pass_on(("t", 0), 3)
    assert not queues.pass_on(("t", 0), 1), "others of the partition are under way"
    assert queues.pass_on(("t", 1), 1)
    assert not queues.pass_on(("t", 2), 1), "no place is left"
    queues.put(("t", 2), NO_BATCH, numbered(0, 1))
    queues.done(("t", 0), 3)
    assert not queues.pass_on(("t", 3), 1), "another partition waits for the place"
    assert queues.take()[0] == ("t", 2)
    unlimited = PartitionQueues(None, batch_records=10, timeout_s=30)
    assert unlimited.pass_on(("t", 0), 3)
    assert unlimited.pass_on(("t", 0), 1)


def test_a_partition_with_messages_under_way_waits_and_then_sends_all_at_once():
    queues = PartitionQueues(3, batch_records=10, timeout_s=30)
    place = ("t", 0)
    for first in (0, 2, 4):
        queues.put(place, NO_BATCH, numbered(first, 2))
        if first == 0:
            queues.take()
    assert queues.take() is None
    queues.done(place, 1)
    assert queues.take() is None, "one of two is still under way"
    queues.done(place, 1)
    _, parts = queues.take()
    assert joined(parts)["private"].tolist() == [2, 3, 4, 5]
    assert joined(parts)["value_bytes"].tolist() == [7] * 4


def test_without_a_number_of_places_nothing_waits():
    queues = PartitionQueues(None, batch_records=3, timeout_s=30)
    for first in (0, 2, 4):
        queues.put(("t", 0), NO_BATCH, numbered(first, 2))
    batches = [joined(queues.take()[1])["private"].tolist() for _ in range(3)]
    assert batches == [[0, 1], [2, 3], [4, 5]]
    queues.put(("t", 0), NO_BATCH, numbered(6, 2))
    assert joined(queues.take()[1])["private"].tolist() == [6, 7]
    queues.done(("t", 0), 8)
    assert queues.take() is None


def test_what_waited_longer_than_the_timeout_has_expired():
    now = [0.0]
    queues = PartitionQueues(None, batch_records=10, timeout_s=30, clock=lambda: now[0])
    queues.put(("t", 0), NO_BATCH, numbered(0, 1))
    _, parts = queues.take()
    now[0] = 30.0
    assert not queues.expired(parts)
    now[0] = 30.1
    assert queues.expired(parts)


def test_what_waits_can_be_cleared_but_not_what_is_under_way():
    queues = PartitionQueues(1, batch_records=10, timeout_s=30)
    for partition in (0, 1):
        queues.put(("t", partition), NO_BATCH, numbered(partition, 1))
    queues.take()
    assert [part.messages["private"].tolist() for part in queues.clear()] == [[1]]
    queues.done(("t", 0), 1)
    assert queues.take() is None


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), max_size=40),
    st.integers(1, 4),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_every_message_leaves_once_and_in_its_partitions_order(puts, places, batch, random):
    queues = PartitionQueues(places, batch_records=batch, timeout_s=30)
    put, taken, under_way = {}, {}, {}
    waiting = list(puts)
    number = 0
    while waiting or under_way:
        if waiting and (not under_way or random.random() < 0.5):
            partition, count = waiting.pop(0)
            messages = numbered(number, count)
            number += count
            put.setdefault(partition, []).extend(messages["private"].tolist())
            if queues.pass_on(("t", partition), count):
                assert ("t", partition) not in under_way
                under_way["t", partition] = count
                taken.setdefault(partition, []).extend(messages["private"].tolist())
            else:
                queues.put(("t", partition), NO_BATCH, messages)
        else:
            place = random.choice(list(under_way))
            queues.done(place, under_way.pop(place))
        while (found := queues.take()) is not None:
            place, parts = found
            assert place not in under_way
            messages = joined(parts)["private"].tolist()
            under_way[place] = len(messages)
            taken.setdefault(place[1], []).extend(messages)
        assert len(under_way) <= places
    assert taken == put


# Java's murmur2 of these, from Kafka's own tests: -973932308, -790332482, -985981536; their lower
# 31 bits modulo 7.
KEYS = ("21", "foobar", "a-little-bit-long-string")


def with_keys(keys, names):
    return replace(NO_BATCH, keys=np.array(keys), names=pa.array(names))


def test_keys_go_where_java_clients_send_them():
    library = librdkafka.load()
    found = KeyPartitions(library, 7).of(with_keys([2, 0, 1, 0], KEYS))
    assert found.tolist() == [1, 3, 0, 3]


def test_keys_that_are_added_later_are_looked_up_too():
    library = librdkafka.load()
    partitions = KeyPartitions(library, 7)
    assert partitions.of(with_keys([0], KEYS[:1])).tolist() == [3]
    assert partitions.of(with_keys([1, 2], KEYS)).tolist() == [0, 1]


def test_messages_of_a_partition_keep_their_order():
    found = by_partition(np.array([3, 0, 3, 1, 0, 3], np.int32))
    assert [(partition, places.tolist()) for partition, places in found] == [
        (0, [1, 4]),
        (1, [3]),
        (3, [0, 2, 5]),
    ]


def test_messages_of_one_partition_stay_together():
    ((partition, places),) = by_partition(np.array([2, 2, 2], np.int32))
    assert (partition, places.tolist()) == (2, [0, 1, 2])


def test_a_single_message_is_a_batch_of_its_own():
    ((partition, places),) = by_partition(np.array([4], np.int32))
    assert (partition, places.tolist()) == (4, [0])
