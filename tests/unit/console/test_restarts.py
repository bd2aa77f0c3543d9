"""Which late outputs a restart explains."""

import pytest

from services.console.report.build import late_until_caught_up
from services.readmodel.seconds import LateSecond

pytestmark = pytest.mark.unit


def rows(stage, *late_by_second):
    return [LateSecond(stage, 1000 * second, late) for second, late in late_by_second]


def test_what_is_late_until_a_second_without_any_is_counted():
    # Nothing was published from 11 to 19 s; the queries ran again at 18.5 s.
    found = rows("join", (10, 0), (20, 400), (21, 30), (22, 0), (25, 7))
    assert late_until_caught_up(found, 18_500) == 430


def test_a_second_without_any_before_the_queries_ran_again_does_not_count():
    assert late_until_caught_up(rows("join", (17, 0), (20, 5), (21, 0)), 18_500) == 5


def test_each_stage_catches_up_on_its_own():
    found = [*rows("join", (20, 0), (21, 9)), *rows("sliding", (20, 3), (21, 4))]
    assert late_until_caught_up(found, 18_500) == 7
