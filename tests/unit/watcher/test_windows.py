"""Verdicts on watched windows: worked out by hand, and compared with a loop over single records."""

import tracemalloc
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.watch import Relation
from services.watcher.records import (
    DUPLICATE,
    EXACT,
    FOUND,
    LATE,
    LOST,
    NONE_MS,
    UNEXPECTED,
    RecordColumns,
)
from services.watcher.windows import MOST_AT_ONCE, Windows
from tests.unit.watcher.one_by_one import windows_of
from tests.unit.watcher.test_ledger import told

pytestmark = pytest.mark.unit

RELATION = Relation(kind="window", deadline_ms=10, give_up_ms=20, remember_ms=50)
HOPPING = RELATION.model_copy(update={"windows": 2})


def records(rows):
    """Records of (identity, time, event time) or (identity, time, begin, end)."""
    count = len(rows)
    return RecordColumns(
        np.array([one[0] for one in rows], np.uint64),
        np.array([one[1] for one in rows], np.int64),
        np.zeros(count, np.int32),
        np.arange(count),
        np.full(count, -1, np.int32),
        np.array([one[2] for one in rows], np.int64),
        np.array([one[-1] for one in rows], np.int64),
        np.full(count, NONE_MS),
    )


def summed(parts):
    """Verdicts with their counts, less those that were retracted."""
    found = {}
    for verdict, input_ms, output_ms in (one for part in parts for one in told(part)):
        is_back = verdict == FOUND
        key = (LOST, input_ms, None) if is_back else (verdict, input_ms, output_ms)
        found[key] = found.get(key, 0) + (-1 if is_back else 1)
    return {key: count for key, count in found.items() if count}


def judged(inputs, outputs, relation=RELATION, cuts=(1_000,)):
    windows, parts, begin = Windows(relation), [], -1_000
    for end in cuts:
        sides = [
            sorted((one for one in side if begin <= one[1] < end), key=lambda one: one[1])
            for side in (inputs, outputs)
        ]
        parts.append(windows.judge(*map(records, sides), end))
        begin = max(begin, end)
    return summed(parts)


INPUTS = [(1, 100, 5), (1, 104, 9), (1, 106, 10), (2, 105, 7)]


@pytest.mark.parametrize(
    ("what", "inputs", "outputs", "expected"),
    [
        (
            "one of each window, since its last input",
            INPUTS,
            [(1, 108, 0, 10), (2, 109, 0, 10), (1, 110, 10, 20)],
            [(EXACT, 104, 108), (EXACT, 105, 109), (EXACT, 106, 110)],
        ),
        ("the deadline counts from the last", INPUTS[:2], [(1, 114, 0, 10)], [(EXACT, 104, 114)]),
        ("after it", INPUTS[:2], [(1, 115, 0, 10)], [(LATE, 104, 115)]),
        (
            "again, without another input",
            INPUTS[:2],
            [(1, 108, 0, 10), (1, 109, 0, 10)],
            [(EXACT, 104, 108), (DUPLICATE, 104, 109)],
        ),
        (
            "again, with one",
            INPUTS[:2],
            [(1, 102, 0, 10), (1, 105, 0, 10)],
            [(EXACT, 100, 102), (EXACT, 104, 105)],
        ),
        (
            "without an input that came too late",
            INPUTS[:2],
            [(1, 102, 0, 10)],
            [(EXACT, 100, 102), (LOST, 104, None)],
        ),
        ("none", INPUTS[:2], [], [(LOST, 100, None), (LOST, 104, None)]),
        (
            "of another key, and of a window without inputs",
            INPUTS[:1],
            [(3, 102, 0, 10), (1, 103, 6, 10)],
            [(UNEXPECTED, None, 102), (UNEXPECTED, None, 103), (LOST, 100, None)],
        ),
        ("before its input", INPUTS[:1], [(1, 97, 0, 10)], [(EXACT, 100, 97)]),
        (
            "twice before it",
            INPUTS[:1],
            [(1, 96, 0, 10), (1, 97, 0, 10)],
            [(EXACT, 100, 96), (DUPLICATE, 100, 97)],
        ),
        (
            "too early",
            INPUTS[:1],
            [(1, 89, 0, 10)],
            [(UNEXPECTED, None, 89), (LOST, 100, None)],
        ),
        ("given up, and then it came", INPUTS[:1], [(1, 130, 0, 10)], [(LATE, 100, 130)]),
    ],
)
def test_a_window_has_the_verdict_that_its_inputs_imply(what, inputs, outputs, expected):
    assert judged(inputs, outputs) == dict.fromkeys(expected, 1), what


def test_an_input_of_two_windows_is_missing_until_it_is_in_both():
    inputs, first, second = [(1, 100, 7)], (1, 105, 0, 10), (1, 106, 5, 15)
    assert judged(inputs, [first], HOPPING) == {(EXACT, 100, 105): 1, (LOST, 100, None): 1}
    assert judged(inputs, [first, (*first[:1], 107, *first[2:])], HOPPING) == {
        (EXACT, 100, 105): 1,
        (DUPLICATE, 100, 107): 1,
        (LOST, 100, None): 1,
    }
    more = [(1, 100, 7), (1, 130, 8)]
    assert judged(more, [first, (1, 135, 0, 10)], HOPPING, (120, 1_000)) == {
        (EXACT, 100, 105): 1,
        (EXACT, 130, 135): 1,
        (LOST, 100, None): 1,
        (LOST, 130, None): 1,
    }
    assert judged(inputs, [first, second], HOPPING) == {(EXACT, 100, 105): 1, (EXACT, 100, 106): 1}


some_inputs = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 200), st.integers(0, 30)), max_size=40
)
some_outputs = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 200), st.integers(0, 25), st.integers(1, 2)).map(
        lambda one: (one[0], one[1], one[2], one[2] + 8 * one[3])
    ),
    max_size=30,
)


@settings(max_examples=250, deadline=None)
@given(
    some_inputs,
    some_outputs,
    st.lists(st.integers(0, 320), max_size=6),
    st.booleans(),
    st.sampled_from([1, 5, MOST_AT_ONCE]),
)
def test_verdicts_are_those_of_a_loop_however_the_records_are_cut(
    inputs, outputs, cuts, is_hopping, most
):
    relation = HOPPING if is_hopping else RELATION
    with patch("services.watcher.windows.MOST_AT_ONCE", most):
        found = judged(inputs, outputs, relation, (*sorted(cuts), 1_000))
    assert found == windows_of(inputs, outputs, relation)


def test_windows_that_all_contain_all_inputs_take_no_room():
    count = 1_500
    inputs = records([(1, 100, n) for n in range(count)])
    outputs = records([(1, 101, 0, count + n) for n in range(count)])
    tracemalloc.start()
    found = Windows(RELATION).judge(inputs, outputs, 102)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.bincount(found.verdict).tolist() == [count]
    assert peak < count * count * 16  # fewer bytes than two columns of all pairs


def many(step):
    """A thousand inputs of ten keys, and the outputs of the thousand before."""
    numbers = np.arange(1_000)
    inputs = [(n % 10, 10 * step, 1_000 * step + n) for n in numbers.tolist()]
    begin = 1_000 * (step - 1)
    outputs = [(key, 10 * step, begin, begin + 1_000) for key in range(10)] if step else []
    return records(inputs), records(outputs)


def test_what_is_forgotten_takes_no_room():
    windows, verdicts = Windows(RELATION), np.zeros(6, int)
    for step in range(200):
        found = windows.judge(*many(step), 10 * step + 1)
        verdicts += np.bincount(found.verdict, minlength=6)
    assert verdicts.tolist() == [1_990, 0, 0, 0, 0, 0]
    assert len(windows) == 5 * 1_000 + 4 * 10


def test_saved_windows_go_on_where_they_were():
    windows, other = Windows(RELATION), Windows(RELATION)
    windows.judge(records(INPUTS), records([(1, 108, 0, 10), (3, 107, 0, 10)]), 109)
    other.restore(windows.saved())
    later = (records([(3, 110, 3)]), records([(1, 111, 0, 10), (2, 112, 0, 10)]), 300)
    expected = {
        (DUPLICATE, 104, 111): 1,
        (EXACT, 105, 112): 1,
        (EXACT, 110, 107): 1,
        (LOST, 106, None): 1,
    }
    assert summed([windows.judge(*later)]) == summed([other.judge(*later)]) == expected


def test_only_a_share_of_the_identities_is_kept():
    windows = Windows(RELATION)
    windows.judge(records(INPUTS), records([(1, 108, 0, 10), (2, 108, 0, 10)]), 109)
    windows.keep(2)
    outputs = records([(1, 110, 0, 10), (2, 110, 0, 10)])
    assert summed([windows.judge(records([]), outputs, 300)]) == {
        (DUPLICATE, 104, 110): 1,
        (UNEXPECTED, None, 110): 1,
        (LOST, 106, None): 1,
    }
