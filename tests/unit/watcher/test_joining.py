"""Which inputs of a join form a group, in any reading order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.watcher.ledger import Joining
from services.watcher.records import RecordColumns

pytestmark = pytest.mark.unit

KEEP_MS = 20


def inputs_of(triples):
    """Records of (identity, time, topic), ordered by time, with consecutive offsets. Each topic has
    two partitions: the place codes are twice its number, and one more."""
    names = np.array([name for name, _, _ in triples], np.uint64)
    times = np.array([ms for _, ms, _ in triples], np.int64)
    places = np.array([2 * topic + ms % 2 for _, ms, topic in triples], np.int32)
    zeros, codes = np.zeros(len(triples), np.int64), np.zeros(len(triples), np.int32)
    numbers = np.arange(len(triples))
    return RecordColumns(names, times, places, numbers, codes, zeros, zeros, zeros)


def topics_of(places):
    return places.astype(np.int64) // 2


def one_by_one(triples, count, is_by_topic):
    """Identity and time of every group, computed by a loop over single inputs."""
    groups, waiting, last = [], {}, {}
    for name, ms, topic in triples:
        mine = waiting.setdefault(name, [0] * count)
        if ms - last.get(name, ms) > KEEP_MS:
            mine[:] = [0] * count
        last[name] = ms
        mine[topic if is_by_topic else mine.index(0)] += 1
        if all(mine):
            groups.append((name, ms))
            mine[:] = [number - 1 for number in mine]
    return groups


def judged(triples, count, cuts_ms, is_by_topic=False):
    """The same, judged up to each of the given times, and to the end."""
    joining, found = Joining(count, KEEP_MS, topics_of if is_by_topic else None), []
    whole = inputs_of(triples)
    begin_ms = 0
    for before_ms in (*sorted(cuts_ms), 1_000):
        mine = whole.take((whole.time_ms >= begin_ms) & (whole.time_ms < before_ms))
        groups = joining.complete(mine, before_ms)
        found += zip(groups.hash.tolist(), groups.time_ms.tolist(), strict=True)
        begin_ms = before_ms
    return found, joining


some = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 200), st.integers(0, 2)), max_size=40)


@settings(max_examples=300, deadline=None)
@given(some, st.integers(2, 3), st.lists(st.integers(0, 250), max_size=12), st.booleans())
def test_groups_follow_from_the_topics_and_not_from_how_they_are_read(
    triples, count, cuts_ms, is_by_topic
):
    triples = [(name, ms, topic % count) for name, ms, topic in triples]
    triples = sorted(triples, key=lambda one: one[1])
    found, joining = judged(triples, count, cuts_ms, is_by_topic)
    assert sorted(found) == sorted(one_by_one(triples, count, is_by_topic))
    assert len(joining.waiting) == 0


def test_a_group_has_one_input_of_each_topic():
    twice_first = [(1, 10, 0), (1, 11, 0), (1, 12, 1), (1, 30, 1)]
    for cuts_ms in ([], [11, 12, 13, 14, 20]):
        assert judged(twice_first, 2, cuts_ms, True)[0] == [(1, 12), (1, 30)]
    assert judged(twice_first, 2, [], False)[0] == [(1, 11), (1, 30)]


def test_an_input_waits_for_as_long_as_others_of_its_identity_come():
    inputs = [(1, 0, 0), (1, 15, 0), (1, 30, 0), (1, 45, 1), (1, 60, 1), (1, 75, 1)]
    for cuts_ms in ([], [1, 16, 31, 46, 61]):
        assert judged(inputs, 2, cuts_ms, True)[0] == [(1, 45), (1, 60), (1, 75)]


def test_an_input_that_is_too_old_for_the_next_is_forgotten():
    early = [(1, 10, 0), (1, 31, 0), (1, 40, 0)]
    assert judged(early, 2, [])[0] == judged(early, 2, [11, 31, 32])[0] == [(1, 40)]
    assert judged([(1, 10, 0), (1, 30, 0), (1, 40, 0)], 2, [])[0] == [(1, 30)]
