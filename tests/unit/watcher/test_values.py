"""Codes of the values that latency is split by."""

import numpy as np
import pytest

from services.watcher.counting import MOST_BYTES, MOST_COUNTED, MOST_VALUES, UNNAMED, SplitValues

pytestmark = pytest.mark.unit

REMEMBER_MS = 100_000
FIRST = [b"v%03d" % number for number in range(MOST_VALUES)]


def filled(count=10):
    """Values with every code taken, by `count` records each at time 0."""
    values = SplitValues(REMEMBER_MS)
    named(values, FIRST * count, 0)
    return values


def named(values, texts, ms):
    """The name of each record's code."""
    codes = values.codes(texts, np.full(len(texts), ms)).tolist()
    return [None if code == UNNAMED else values.names[code] for code in codes]


def test_values_have_codes_up_to_a_bound_and_records_without_one_none():
    assert named(filled(), [b"v007", None, b"new"], 0) == ["v007", None, "(others)"]


def test_a_value_that_becomes_frequent_gets_the_code_of_a_rare_one_once_that_is_forgotten():
    values = filled()
    values.codes([b"v000"], np.array([5_000]))
    values.turn(0)
    named(values, FIRST[1:] * 10 + [b"new"] * 20, 60_000)
    code_before = values.codes([b"v000"], np.array([60_000]))[0]
    values.turn(60_000)
    assert named(values, [b"v000", b"new"], 61_000) == ["(others)", "(others)"]
    assert values.names[code_before] == "v000"  # records that wait for outputs have it
    named(values, [b"new"], 62_000)
    values.turn(160_000)
    assert named(values, [b"new"], 161_000) == ["(others)"]
    values.turn(220_000)
    assert named(values, [b"v000", b"new", b"v001"], 221_000) == ["(others)", "new", "v001"]
    assert values.names[code_before] == "new"
    assert len(values.names) == MOST_VALUES + 1


def test_values_of_about_the_same_frequency_keep_their_codes():
    values = filled(count=10)
    named(values, [b"new"] * 20, 0)
    values.turn(0)
    assert named(values, [b"v000", b"v199"], 1) == ["v000", "v199"]


def test_a_displaced_value_that_is_frequent_again_gets_its_code_back():
    values = filled(count=1)
    named(values, FIRST[1:] * 9 + [b"new"] * 9, 0)
    values.turn(0)
    assert named(values, [b"v000"] * 9, 1) == ["(others)"] * 9
    values.turn(60_000)
    assert named(values, [b"v000", b"new"], 60_001) == ["v000", "(others)"]


def test_codes_are_restored_by_their_names():
    values, other = filled(), SplitValues(REMEMBER_MS)
    named(values, [b"new"], 0)
    other.restore(values.names)
    texts = [b"v199", b"new", None]
    assert other.codes(texts, np.zeros(3)).tolist() == values.codes(texts, np.zeros(3)).tolist()


def test_memory_is_bounded():
    values = SplitValues(REMEMBER_MS)
    named(values, [b"x" * 10_000 + b"%d" % number for number in range(10)], 0)
    named(values, [b"%d" % number for number in range(10 * MOST_COUNTED)], 0)
    assert len(values._counts) == MOST_COUNTED
    assert values.names[0] == "x" * MOST_BYTES
    assert len(values.names) == len(values._codes) - 1 == MOST_VALUES + 1
