"""Messages wait for their partition's turn while others are under way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.generator.in_flight import InFlight, joined
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
    in_flight = InFlight(2, batch_records=10, timeout_s=30)
    for partition in range(4):
        in_flight.put(("t", partition), NO_BATCH, numbered(0, 1))
    assert [in_flight.take()[0], in_flight.take()[0]] == [("t", 0), ("t", 1)]
    assert in_flight.take() is None
    in_flight.done(("t", 1), 1)
    assert in_flight.take()[0] == ("t", 2)
    assert in_flight.take() is None


def test_a_partition_with_messages_under_way_waits_and_then_sends_all_at_once():
    in_flight = InFlight(3, batch_records=10, timeout_s=30)
    place = ("t", 0)
    for first in (0, 2, 4):
        in_flight.put(place, NO_BATCH, numbered(first, 2))
        if first == 0:
            in_flight.take()
    assert in_flight.take() is None
    in_flight.done(place, 1)
    assert in_flight.take() is None, "one of two is still under way"
    in_flight.done(place, 1)
    _, parts = in_flight.take()
    assert joined(parts)["private"].tolist() == [2, 3, 4, 5]
    assert joined(parts)["value_bytes"].tolist() == [7] * 4


def test_without_a_number_of_places_nothing_waits():
    in_flight = InFlight(None, batch_records=3, timeout_s=30)
    for first in (0, 2, 4):
        in_flight.put(("t", 0), NO_BATCH, numbered(first, 2))
    batches = [joined(in_flight.take()[1])["private"].tolist() for _ in range(3)]
    assert batches == [[0, 1], [2, 3], [4, 5]]
    in_flight.put(("t", 0), NO_BATCH, numbered(6, 2))
    assert joined(in_flight.take()[1])["private"].tolist() == [6, 7]
    in_flight.done(("t", 0), 8)
    assert in_flight.take() is None


def test_what_waited_longer_than_the_timeout_has_expired():
    now = [0.0]
    in_flight = InFlight(None, batch_records=10, timeout_s=30, clock=lambda: now[0])
    in_flight.put(("t", 0), NO_BATCH, numbered(0, 1))
    _, parts = in_flight.take()
    now[0] = 30.0
    assert not in_flight.expired(parts)
    now[0] = 30.1
    assert in_flight.expired(parts)


def test_what_waits_can_be_cleared_but_not_what_is_under_way():
    in_flight = InFlight(1, batch_records=10, timeout_s=30)
    for partition in (0, 1):
        in_flight.put(("t", partition), NO_BATCH, numbered(partition, 1))
    in_flight.take()
    assert [part.messages["private"].tolist() for part in in_flight.clear()] == [[1]]
    in_flight.done(("t", 0), 1)
    assert in_flight.take() is None


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), max_size=40),
    st.integers(1, 4),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_every_message_leaves_once_and_in_its_partitions_order(puts, places, batch, random):
    in_flight = InFlight(places, batch_records=batch, timeout_s=30)
    put, taken, under_way = {}, {}, {}
    waiting = list(puts)
    number = 0
    while waiting or under_way:
        if waiting and (not under_way or random.random() < 0.5):
            partition, count = waiting.pop(0)
            messages = numbered(number, count)
            number += count
            put.setdefault(partition, []).extend(messages["private"].tolist())
            in_flight.put(("t", partition), NO_BATCH, messages)
        else:
            place = random.choice(list(under_way))
            in_flight.done(place, under_way.pop(place))
        while (found := in_flight.take()) is not None:
            place, parts = found
            assert place not in under_way
            messages = joined(parts)["private"].tolist()
            under_way[place] = len(messages)
            taken.setdefault(place[1], []).extend(messages)
        assert len(under_way) <= places
    assert taken == put
