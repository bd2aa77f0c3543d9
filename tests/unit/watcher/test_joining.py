"""Which inputs of a join form a group, in any reading order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.watcher.joining import Joining
from services.watcher.records import Records

pytestmark = pytest.mark.unit

KEEP_MS = 20


def inputs_of(pairs):
    """Records of (identity, time), ordered by time, with consecutive offsets."""
    names = np.array([name for name, _ in pairs], np.uint64)
    times = np.array([ms for _, ms in pairs], np.int64)
    zeros, codes = np.zeros(len(pairs), np.int64), np.zeros(len(pairs), np.int32)
    return Records(names, times, codes, np.arange(len(pairs)), codes, zeros, zeros)


def one_by_one(pairs, count):
    """Identity and time of every group, computed by a loop over single inputs."""
    groups, waiting = [], {}
    for name, ms in pairs:
        mine = waiting.setdefault(name, [])
        if mine and ms - mine[-1] > KEEP_MS:
            mine.clear()
        mine.append(ms)
        if len(mine) == count:
            groups.append((name, ms))
            mine.clear()
    return groups


def judged(pairs, count, cuts_ms):
    """The same, judged up to each of the given times, and to the end."""
    joining, found = Joining(count, KEEP_MS), []
    whole = inputs_of(pairs)
    begin_ms = 0
    for before_ms in (*sorted(cuts_ms), 1_000):
        mine = whole.take((whole.time_ms >= begin_ms) & (whole.time_ms < before_ms))
        groups = joining.complete(mine, before_ms)
        found += zip(groups.hash.tolist(), groups.time_ms.tolist(), strict=True)
        begin_ms = before_ms
    return found, joining


some = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 200)), max_size=40)


@settings(max_examples=300, deadline=None)
@given(some, st.integers(2, 3), st.lists(st.integers(0, 250), max_size=12))
def test_groups_follow_from_the_topics_and_not_from_how_they_are_read(pairs, count, cuts_ms):
    pairs = sorted(pairs, key=lambda one: one[1])
    found, joining = judged(pairs, count, cuts_ms)
    assert sorted(found) == sorted(one_by_one(pairs, count))
    assert len(joining.waiting) == 0


def test_an_input_that_is_too_old_for_the_next_is_forgotten():
    early = [(1, 10), (1, 31), (1, 40)]
    assert judged(early, 2, [])[0] == judged(early, 2, [11, 31, 32])[0] == [(1, 40)]
    assert judged([(1, 10), (1, 30), (1, 40)], 2, [])[0] == [(1, 30)]
