"""The reported lag of the evaluation."""

import pytest

from services.evaluator.reader import Frontier

pytestmark = pytest.mark.unit


def test_the_topic_that_is_read_least_far_says_how_far_behind_reading_is():
    assert Frontier(1_700, 1_900, {}).behind_ms(now_ms=2_000, since_ms=1_000) == 300
    assert Frontier(1_900, 1_700, {}).behind_ms(now_ms=2_000, since_ms=1_000) == 300


def test_a_topic_that_was_not_read_yet_is_as_far_behind_as_reading_has_gone_on():
    assert Frontier(0, 1_900, {}).behind_ms(now_ms=2_000, since_ms=1_950) == 50


def test_reading_that_caught_up_since_it_was_asked_is_not_behind():
    assert Frontier(2_001, 2_001, {}).behind_ms(now_ms=2_000, since_ms=1_000) == 0
