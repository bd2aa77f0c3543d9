"""Verdicts on watched outputs: worked out by hand, and compared with a loop over single records."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.watch import Relation
from services.watcher.ledger import WatchLedger
from services.watcher.records import (
    DUPLICATE,
    EXACT,
    FOUND,
    LATE,
    LOST,
    NONE_MS,
    UNEXPECTED,
    RecordColumns,
    no_records,
)
from tests.unit.watcher.one_by_one import verdicts_of

pytestmark = pytest.mark.unit

RELATION = Relation(deadline_ms=10, give_up_ms=20, remember_ms=50)


def records(*pairs):
    count = len(pairs)
    return RecordColumns(
        np.array([one for one, _ in pairs], np.uint64),
        np.array([ms for _, ms in pairs], np.int64),
        np.zeros(count, np.int32),
        np.arange(count),
        np.full(count, -1, np.int32),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
        np.full(count, NONE_MS),
    )


def told(judged):
    """(verdict, input, output) of each, with NONE_MS as None."""
    columns = (judged.verdict.tolist(), judged.input_ms.tolist(), judged.output_ms.tolist())
    return sorted(
        (verdict, *(None if ms == NONE_MS else ms for ms in times))
        for verdict, *times in zip(*columns, strict=True)
    )


def judged(inputs, outputs, before_ms=1_000, relation=RELATION):
    return told(WatchLedger(relation).judge(records(*inputs), records(*outputs), before_ms))


@pytest.mark.parametrize(
    ("what", "inputs", "outputs", "expected"),
    [
        ("an output in time", [(1, 100)], [(1, 104)], [(EXACT, 100, 104)]),
        ("at the deadline", [(1, 100)], [(1, 110)], [(EXACT, 100, 110)]),
        ("after it", [(1, 100)], [(1, 111)], [(LATE, 100, 111)]),
        ("after it was given up", [(1, 100)], [(1, 121)], [(LATE, 100, 121)]),
        ("none", [(1, 100)], [], [(LOST, 100, None)]),
        ("two", [(1, 100)], [(1, 104), (1, 105)], [(EXACT, 100, 104), (DUPLICATE, 100, 105)]),
        ("of no input", [], [(1, 104)], [(UNEXPECTED, None, 104)]),
        ("before its input", [(1, 100)], [(1, 97)], [(EXACT, 100, 97)]),
        ("too early", [(1, 100)], [(1, 89)], [(UNEXPECTED, None, 89), (LOST, 100, None)]),
        ("forgotten", [(1, 100)], [(1, 151)], [(UNEXPECTED, None, 151), (LOST, 100, None)]),
        (
            "an identity that comes again",
            [(1, 100), (1, 105)],
            [(1, 106), (1, 107)],
            [(EXACT, 100, 106), (EXACT, 105, 107)],
        ),
        (
            "of the younger, because the older is given up",
            [(1, 100), (1, 120)],
            [(1, 125)],
            [(EXACT, 120, 125), (LOST, 100, None)],
        ),
        (
            "two before their input",
            [(1, 100)],
            [(1, 97), (1, 98)],
            [(EXACT, 100, 97), (DUPLICATE, 100, 98)],
        ),
    ],
)
def test_an_output_has_the_verdict_that_its_times_imply(what, inputs, outputs, expected):
    assert judged(inputs, outputs) == sorted(expected), what


def test_what_was_missing_is_taken_back_when_it_comes():
    ledger = WatchLedger(RELATION)
    assert told(ledger.judge(records((1, 100)), no_records(), 121)) == [(LOST, 100, None)]
    found = told(ledger.judge(no_records(), records((1, 130)), 140))
    assert found == [(LATE, 100, 130), (FOUND, 100, 130)]


def test_an_output_of_a_filter_that_does_not_come_is_no_loss():
    relation = RELATION.model_copy(update={"kind": "filter"})
    assert judged([(1, 100), (2, 101)], [(2, 103)], relation=relation) == [(EXACT, 101, 103)]


def test_a_late_output_of_a_filter_takes_no_loss_back():
    ledger = WatchLedger(RELATION.model_copy(update={"kind": "filter"}))
    assert told(ledger.judge(records((1, 100)), no_records(), 121)) == []
    assert told(ledger.judge(no_records(), records((1, 130)), 140)) == [(LATE, 100, 130)]


def test_an_input_that_was_read_late_is_still_the_older_one():
    ledger = WatchLedger(RELATION)
    ledger.judge(records((1, 100)), no_records(), 101)
    found = told(ledger.judge(records((1, 95)), records((1, 103), (1, 104)), 106))
    assert found == [(EXACT, 95, 103), (EXACT, 100, 104)]


some_records = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 200)), max_size=40)


@settings(max_examples=400, deadline=None)
@given(some_records, some_records, st.lists(st.integers(0, 320), max_size=6))
def test_verdicts_are_those_of_a_loop_however_the_records_are_cut(inputs, outputs, cuts):
    ledger, found = WatchLedger(RELATION), {}
    begin = -1_000
    for end in (*sorted(cuts), 1_000):
        parts = [
            records(*sorted((one for one in side if begin <= one[1] < end), key=lambda r: r[1]))
            for side in (inputs, outputs)
        ]
        for one in told(ledger.judge(*parts, end)):
            found[one] = found.get(one, 0) + 1
        begin = max(begin, end)
    for verdict, input_ms, output_ms in list(found):
        if verdict == FOUND:
            times = found.pop((FOUND, input_ms, output_ms))
            found[LOST, input_ms, None] -= times
    assert {one: n for one, n in found.items() if n} == verdicts_of(inputs, outputs, RELATION)


def of_hashes(hashes, time_ms):
    return records(*((name, time_ms) for name in hashes.tolist()))


def test_many_identities_are_found_whichever_block_they_are_in():
    ledger = WatchLedger(RELATION.model_copy(update={"remember_ms": 100_000}))
    hashes = np.random.default_rng(3).permutation(np.arange(1, 30_001))
    for step in range(30):
        mine = of_hashes(hashes[1000 * step : 1000 * step + 1000], step)
        ledger.judge(mine, no_records(), step + 1)
    verdicts = ledger.judge(no_records(), of_hashes(hashes, 31), 32).verdict
    assert np.bincount(verdicts)[:3].tolist() == [9_000, 21_000, 0]


def test_what_is_forgotten_takes_no_room():
    ledger = WatchLedger(RELATION)
    for step in range(200):
        ledger.judge(
            of_hashes(np.arange(1_000) + 1_000 * step, 10 * step), no_records(), 10 * step + 1
        )
    assert len(ledger.groups) == 5_000


def test_a_saved_ledger_goes_on_where_it_was():
    ledger, other = WatchLedger(RELATION), WatchLedger(RELATION)
    ledger.judge(records((1, 100), (2, 105)), records((1, 103), (3, 104)), 106)
    other.restore(ledger.saved())
    later = (records((3, 107)), records((2, 108), (1, 109)), 300)
    expected = [(EXACT, 105, 108), (EXACT, 107, 104), (DUPLICATE, 100, 109)]
    assert told(ledger.judge(*later)) == told(other.judge(*later)) == sorted(expected)
