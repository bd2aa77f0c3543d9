"""Codes of pairs of keys: dense, one for each pair, bounded for values that only outputs have."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.evaluator.columnar.columns import UNKNOWN, StateLimits
from services.evaluator.columnar.value_codes import Pairs

pytestmark = pytest.mark.unit


def ints(values):
    return np.array(values, np.int64)


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=9), max_size=5))
@pytest.mark.parametrize("table_cells", [0, 30, 1_000], ids=["dictionary", "both", "table"])
def test_every_pair_has_one_code_and_codes_are_dense(table_cells, batches):
    pairs, codes = Pairs(StateLimits(table_cells=table_cells)), {}
    for batch in batches:
        left, right = (ints([pair[side] for pair in batch]) for side in (0, 1))
        for pair, code in zip(batch, pairs.of(left, right).tolist(), strict=True):
            assert codes.setdefault(pair, code) == code
    assert sorted(codes.values()) == list(range(len(pairs)))


@pytest.mark.parametrize("table_cells", [0, 1_000], ids=["dictionary", "table"])
def test_pairs_of_outputs_alone_leave_the_others_to_inputs(table_cells):
    pairs = Pairs(StateLimits(table_cells=table_cells, unclaimed=2))
    left = ints([0, 1, 2, 3])
    assert sorted(pairs.of(left, left, of_outputs=True)) == [UNKNOWN, UNKNOWN, 0, 1]
    assert sorted(pairs.of(left[:2], left[:2])) == [0, 1]
    assert len(pairs) == 2
    assert sorted(pairs.of(left, left[::-1], of_outputs=True)) == [UNKNOWN, UNKNOWN, 2, 3]
