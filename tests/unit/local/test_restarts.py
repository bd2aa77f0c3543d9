"""How often a part is restarted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.supervisor import Budget

pytestmark = pytest.mark.unit

THREE = Budget(restarts=3, window_s=60.0, first_delay_s=0.5, longest_delay_s=1.5)


@pytest.mark.parametrize(
    ("past_s", "delay_s", "why"),
    [
        ((), 0.5, "the first time it waits the first delay"),
        ((90.0,), 1.0, "the second time twice that"),
        ((80.0, 90.0), 1.5, "never longer than the longest"),
        ((80.0, 90.0, 95.0), None, "three in a minute use it up"),
        ((40.0, 80.0, 90.0), 1.5, "one that is sixty seconds old no longer counts"),
        ((10.0, 20.0, 30.0), 0.5, "after a quiet minute it is as at first"),
    ],
)
def test_a_part_waits_longer_each_time_until_the_budget_is_used_up(past_s, delay_s, why):
    assert THREE.delay_s(past_s, now_s=100.0) == delay_s, why


def test_a_budget_of_none_ends_with_the_first_death():
    assert Budget(restarts=0).delay_s((), now_s=0.0) is None


@given(st.lists(st.floats(0, 1000), max_size=60), st.integers(1, 6))
def test_within_any_window_there_are_never_more_restarts_than_allowed(deaths_s, restarts):
    budget = Budget(restarts=restarts, window_s=60.0)
    past_s: tuple[float, ...] = ()
    for death_s in sorted(deaths_s):
        delay_s = budget.delay_s(past_s, death_s)
        if delay_s is not None:
            past_s = (*past_s, death_s)
    for first_s in past_s:
        assert sum(first_s <= at_s < first_s + 60.0 for at_s in past_s) <= restarts
