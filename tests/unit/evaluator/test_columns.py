"""Grouping, counting, first rows and dictionary codes of columns, compared with plain Python."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.evaluator import columns
from services.evaluator.columns import UNKNOWN, Groups, Pairs, TooMuchStateError, first_of_each
from services.runtime.cells import by_value, count_cells

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


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=9), max_size=5))
@pytest.mark.parametrize("table_cells", [0, 30, 1_000], ids=["dictionary", "both", "table"])
def test_every_pair_has_one_code_and_codes_are_dense(table_cells, batches):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "MAX_TABLE_CELLS", table_cells)
        pairs, codes = Pairs(), {}
        for batch in batches:
            found = pairs.of(ints([one[0] for one in batch]), ints([one[1] for one in batch]))
            for pair, code in zip(batch, found.tolist(), strict=True):
                assert codes.setdefault(pair, code) == code
    assert sorted(codes.values()) == list(range(len(pairs)))


@pytest.mark.parametrize("table_cells", [0, 1_000], ids=["dictionary", "table"])
def test_pairs_of_outputs_alone_leave_the_others_to_inputs(table_cells, monkeypatch):
    monkeypatch.setattr(columns, "MAX_TABLE_CELLS", table_cells)
    monkeypatch.setattr(columns, "MAX_UNCLAIMED", 2)
    pairs, left = Pairs(), ints([0, 1, 2, 3])
    assert sorted(pairs.of(left, left, of_outputs=True)) == [UNKNOWN, UNKNOWN, 0, 1]
    assert sorted(pairs.of(left[:2], left[:2])) == [0, 1]
    assert len(pairs) == 2
    assert sorted(pairs.of(left, left[::-1], of_outputs=True)) == [UNKNOWN, UNKNOWN, 2, 3]


def test_groups_count_their_cells_and_refuse_too_many(monkeypatch):
    monkeypatch.setattr(columns, "MAX_GROUP_CELLS", 100)
    groups = Groups({"count": (np.int64, 7)})
    groups.ensure(1, 20)["count"][3] += 1
    groups.ensure(1, 30)  # grows to twice the size
    groups.ensure(5, 60)
    assert (groups[1].size, groups[5].size, groups.size) == (40, 60, 100)
    assert groups[1]["count"][[2, 3, 39]].tolist() == [7, 8, 7]
    groups.ensure(5, 50)
    with pytest.raises(TooMuchStateError, match="each of 3 windows or event times has one for"):
        groups.ensure(6, 1)
    assert groups.evict(5) == [1]
    assert groups.size == 60
    assert groups.ensure(6, 1).size == 16
