"""Remembered inputs: small columns keep whole numbers, and are looked up as in a list."""

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.watcher.groups import FIRST_CELLS, Column, Groups

pytestmark = pytest.mark.unit

BEGIN_MS = 1_764_000_000_000
FAR = 1 << 40  # more than 32 bits apart


def added(groups, rows, **more):
    """Add groups: hash, time, place and offset of each."""
    hash_, time_ms, place, offset = (np.array(each, np.int64) for each in zip(*rows, strict=True))
    columns = {"hash": hash_.astype(np.uint64), "time_ms": time_ms, "offset": offset}
    codes = {"place": place.astype(np.int32), "by": np.full(len(rows), -1, np.int32)}
    groups.add(**columns, **codes, **more)


def test_a_group_takes_25_bytes_while_times_offsets_and_places_are_near():
    groups = Groups()
    added(groups, [(number, BEGIN_MS + number, number % 4, number // 4) for number in range(100)])
    columns = groups.saved()
    del columns["bases"]
    assert sum(column.nbytes for column in columns.values()) == 25 * 100


@pytest.mark.parametrize("values", [[BEGIN_MS, BEGIN_MS + FAR], [-FAR, FAR], [1 << 62, 0]])
def test_numbers_that_are_far_apart_are_kept_whole(values):
    column = Column(np.int64, np.int32)
    column.put(0, 0, np.array(values[:1]))
    column.put(0, 1, np.array(values[1:]))
    assert column.get(slice(0, 2)).tolist() == values
    assert column.cells.dtype == np.int64
    column.move(1, 2, FIRST_CELLS)
    assert column.get(slice(0, 1)).tolist() == values[1:]
    assert column.cells.dtype == np.int32


def test_a_clock_that_goes_on_for_months_needs_no_more_bits():
    column = Column(np.int64, np.int32)
    for month in range(12):
        column.put(month, month, np.array([BEGIN_MS + month * 30 * 86_400_000]))
        assert column.cells.dtype == np.int32
        assert column.get(slice(month, month + 1)).tolist() == [BEGIN_MS + month * 30 * 86_400_000]


def test_equal_numbers_take_no_memory_until_another_comes():
    column = Column(np.int64, np.int32)
    column.put(0, 0, np.array([FAR, FAR]))
    column.put(0, 2, np.array([FAR]))
    column.move(1, 3, 2 * FIRST_CELLS)
    assert (column.are_equal, column.get(slice(0, 2)).tolist()) == (True, [FAR, FAR])
    column.put(0, 2, np.array([FAR + 1, FAR]))
    assert not column.are_equal
    assert column.get(slice(0, 4)).tolist() == [FAR, FAR, FAR + 1, FAR]


def test_rows_move_within_as_many_cells():
    column = Column(np.int64, np.int32)
    column.put(0, 0, np.arange(FIRST_CELLS))
    cells = column.cells
    column.move(1_000, FIRST_CELLS, FIRST_CELLS)
    assert column.cells is cells
    rows_left = FIRST_CELLS - 1_000
    assert column.get(slice(0, rows_left)).tolist() == list(range(1_000, FIRST_CELLS))


@pytest.mark.parametrize("remembered", [14_500, 40_000])
def test_many_groups_are_found_while_older_ones_are_forgotten(remembered):
    groups = Groups()
    for first in range(0, 150_000, 1_500):
        added(groups, [(n, BEGIN_MS + n, n % 5, n) for n in range(first, first + 1_500)])
        groups.forget(groups.end - remembered)
        numbers = np.arange(groups.first, groups.end)
        assert groups.of("hash", numbers).tolist() == numbers.tolist()
        assert groups.of("place", numbers).tolist() == (numbers % 5).tolist()
        assert groups.find(numbers.astype(np.uint64)).number.tolist() == numbers.tolist()


rows = st.tuples(
    st.integers(0, 9),
    st.sampled_from([0, 1, 5, 100, FAR]),
    st.sampled_from([0, 1, 70_000]),
    st.sampled_from([0, 3, FAR, 2 * FAR]),
)


@given(st.lists(st.tuples(st.lists(rows, min_size=1, max_size=30), st.integers(0, 20))), st.data())
def test_groups_are_those_of_a_list(batches, data):
    groups, known, latest = Groups(most=8), [], []
    for batch, forgotten in batches:
        least = latest[-1] if len(groups) else batch[0][1]
        latest += [*accumulate((row[1] for row in batch), max, initial=least)][1:]
        added(groups, batch)
        known += [(len(known) + place, *row) for place, row in enumerate(batch)]
        groups.forget(min(groups.end, groups.first + forgotten))
        if data.draw(st.booleans()):
            again = Groups(most=8)
            again.end = groups.first
            again.restore(groups.saved())
            groups = again
    alive = [each for each in known if each[0] >= groups.first]
    matches = groups.find(np.arange(10, dtype=np.uint64))
    found = sorted(zip(matches.asked.tolist(), matches.number.tolist(), strict=True))
    assert found == sorted((hash_, number) for number, hash_, *_ in alive)
    for place, name in enumerate(("hash", "time_ms", "place", "offset"), 1):
        of = groups.of(name, np.arange(groups.first, groups.end))
        assert of.tolist() == [each[place] for each in alive]
    # A group is due after the latest time up to it, since there were none.
    for limit in (0, 1, 2, 5, 6, 100, 101, FAR, FAR + 1):
        for start in {groups.first, (groups.first + groups.end) // 2, groups.end}:
            due = (number for number in range(start, groups.end) if latest[number] >= limit)
            assert groups.until(limit, start) == next(due, groups.end)


@given(st.lists(st.lists(rows, min_size=1, max_size=30)), st.integers(0, 40), st.integers(1, 9))
def test_groups_by_start_are_those_of_a_list(batches, forgotten, most):
    groups = Groups(by_start=True, most=8)
    known = [row for batch in batches for row in batch]
    for batch in batches:
        added(groups, batch, start_us=np.array([row[1] for row in batch]))
    groups.forget(min(groups.end, forgotten))
    asked = np.arange(10, dtype=np.uint64)
    starts, ends = np.full(10, 1), np.full(10, 101)
    found = [
        (first + place, number)
        for first, end, matches in groups.find_in_parts(asked, starts, ends, most)
        for place, number in zip((matches.asked - first).tolist(), matches.number, strict=True)
        if first + place < end
    ]
    wanted = enumerate(known[groups.first :], groups.first)
    assert sorted(found) == sorted(
        (hash_, number) for number, (hash_, start_us, *_) in wanted if 1 <= start_us < 101
    )
