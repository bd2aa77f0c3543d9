"""Grouping, counting and first rows of columns, compared with plain Python; cells of groups."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.evaluator.columnar.columns import (
    MAX_DENSE_CELLS,
    UNKNOWN,
    CellGroups,
    Group,
    TooMuchStateError,
    first_of_each,
)
from services.runtime.counting import by_value, count_cells

pytestmark = pytest.mark.unit

VALUES = st.lists(st.integers(-3, 3) | st.integers(-(2**40), 2**40), max_size=40)


def ints(values):
    return np.array(values, np.int64)


@given(VALUES)
def test_groups_hold_every_row_once_in_order(values):
    found = {}
    for value, rows in by_value(ints(values)):
        assert value not in found
        found[value] = np.arange(len(values))[rows].tolist()
    assert found == {v: [i for i, w in enumerate(values) if w == v] for v in set(values)}


def test_rows_that_lie_together_are_a_slice():
    assert list(by_value(ints([4, 4, 9]))) == [(4, slice(0, 2)), (9, slice(2, 3))]


def test_many_short_stretches_are_grouped_too():
    values = ints([0, 1] * 200)
    assert {value: len(values[rows]) for value, rows in by_value(values)} == {0: 200, 1: 200}


def test_values_far_apart_are_not_taken_for_each_other():
    values = ints([-(2**63), 0, 2**63 - 1] * 100)
    found = [(value, len(values[rows])) for value, rows in by_value(values)]
    assert found == [(-(2**63), 100), (0, 100), (2**63 - 1, 100)]


@given(VALUES)
def test_the_first_of_each_value_is_the_one_that_a_set_would_let_in(values):
    seen = set()
    expected = [not (value in seen or seen.add(value)) for value in values]
    assert first_of_each(ints(values)).tolist() == expected


FAR = st.integers(-3, 3) | st.sampled_from([-(2**61), 2**61])


@given(st.lists(st.tuples(FAR, FAR), max_size=40))
def test_counts_are_those_of_a_counter(rows):
    left, right = ints([row[0] for row in rows]), ints([row[1] for row in rows])
    assert {tuple(cell): n for cell, n in count_cells(left, right)} == Counter(rows)


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
@given(batches=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=9), max_size=6))
def test_each_code_of_a_group_has_one_cell(dense, batches):
    group, places, count = Group({"count": (np.int64, 7)}, dense=dense), {}, Counter()
    for codes in batches:
        for code, at in zip(codes, group.add(ints(codes)).tolist(), strict=True):
            assert places.setdefault(code, at) == at
            group["count"][at] += 1
            count[code] += 1
    assert len(set(places.values())) == len(places)
    at = group.positions(np.arange(70))
    assert {code: at[code] for code in places} == places
    assert group.codes(ints(list(places.values()))).tolist() == list(places)
    found = {code: group["count"][at[code]] - 7 for code in range(70) if at[code] != UNKNOWN}
    assert Counter(found) == count
    assert group.positions(ints([UNKNOWN])).tolist() == [UNKNOWN]


def test_groups_with_few_of_many_codes_have_few_cells():
    groups = CellGroups({"count": (np.int64, 0)})
    for number in range(100):
        groups.add(number, ints([100_000 + number, 7]), 2_000_000)
    assert groups.size < MAX_DENSE_CELLS / 100
    assert [groups[number].codes(ints([0, 1])).tolist() for number in (0, 99)] == [
        [7, 100_000],
        [7, 100_099],
    ]
    most, at = groups.add(100, np.arange(600_000), 2_000_000)
    assert most.size == len(at) == 600_000


def test_groups_know_their_size_and_refuse_too_many():
    groups = CellGroups({"count": (np.int64, 7)}, max_bytes=800)
    groups.add(1, ints([19]), 20)[0]["count"][3] += 1
    groups.add(1, ints([29, 3]), 30)  # grows to twice the size
    groups.add(5, ints([59]), 60)
    assert (groups[1].size, groups[5].size, groups.size) == (40, 60, 100)
    assert groups[1]["count"][[2, 3, 39]].tolist() == [7, 8, 7]
    groups.add(5, ints([49]), 60)
    with pytest.raises(TooMuchStateError, match="3 windows or event times with 116 cells for 60"):
        groups.add(6, ints([0]), 60)
    assert groups.evict(6) == [1, 5]
    assert groups.size == 16
    assert groups.add(7, ints([0]), 60)[0].size == 16
