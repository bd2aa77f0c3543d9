"""Bracket, bisect, confirm: on systems of known capacity."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.protocol import Phases, Validity
from schemas.search import QueueThresholds, Search, SteadyLatency
from services.conductor.search.bisection import (
    Done,
    Planned,
    SustainableRate,
    ended_by,
    next_step,
    search_result,
    step_request,
    verifying_request,
)
from services.definitions.domains import load_domain
from tests.unit.conductor.simulated import System, search_on
from tests.unit.requests import RUN_ID, a_request

pytestmark = pytest.mark.unit

POLICIES = ("steady-latency", "queue-by-time", "queue-by-count", "queue-combined")
NO = ("too slow.",)


def exact_search(policy: str) -> Search:
    """Accurate to 5 %: the defaults are for short steps on a busy machine."""
    return Search(
        policy=policy,
        precision=0.02,
        step_s=20,
        confirm_s=40,
        max_steps=60,
        steady_latency=SteadyLatency(max_rise=0.02),
        queue=QueueThresholds(
            acceptable=0.02, unacceptable=0.06, full=0.2, tolerated_s=3, tolerated=0.02
        ),
    )


capacities = st.floats(100, 300_000)
guesses = st.floats(-1, 1).map(lambda exponent: 10**exponent)  # wrong by up to a factor of ten
seeds = st.integers(0, 1_000_000)


@settings(max_examples=15)
@given(st.sampled_from(POLICIES), capacities, guesses)
def test_a_known_capacity_is_found_within_five_percent_and_never_exceeded(
    policy: str, capacity: float, guess: float
) -> None:
    result = search_on(System(capacity), exact_search(policy), capacity * guess)
    assert result.rate_per_second is not None
    assert 0.95 * capacity <= result.rate_per_second <= capacity * 1.0005  # rates have four digits
    assert result.confirmed
    assert result.interval[0] <= capacity * 1.0005
    assert result.interval[1] is not None
    assert capacity <= result.interval[1]


@settings(max_examples=15)
@given(st.sampled_from(POLICIES), capacities, guesses, seeds)
def test_noise_does_not_lead_astray(policy: str, capacity: float, guess: float, seed: int) -> None:
    """The mean of 3 % uniform noise over a confirmation is accurate to about 1 %."""
    system = System(capacity, capacity_noise=0.03, latency_noise_ms=50)
    result = search_on(system, exact_search(policy), capacity * guess, seed)
    assert result.rate_per_second is not None
    assert 0.95 * capacity <= result.rate_per_second <= 1.01 * capacity


@settings(max_examples=15)
@given(st.sampled_from(POLICIES), capacities, guesses, st.floats(0.0001, 0.002))
def test_with_a_slow_leak_the_rate_is_never_above_what_a_long_step_can_do(
    policy: str, capacity: float, guess: float, leak: float
) -> None:
    search = exact_search(policy)
    system = System(capacity, leak=leak)
    result = search_on(system, search, capacity * guess)
    end_s = search.step_warm_up_s + search.confirm_s
    assert result.rate_per_second is not None
    assert result.confirmed
    # A leak loses the same share every second, so its mean is the capacity at mid-step.
    assert 0.95 * system.capacity_at(end_s) <= result.rate_per_second
    assert result.rate_per_second <= 1.0005 * system.capacity_at(end_s / 2)


def test_a_leak_that_only_a_long_step_sees_makes_all_further_steps_long() -> None:
    steps = [
        Done(100, long=False),
        Done(110, long=False, refusals=NO),
        Done(100, long=True, refusals=NO),
    ]
    search = Search(precision=0.1, factor=2)
    assert next_step(steps, search, 100) == Planned(50, long=True)
    steps.append(Done(50, long=True))
    assert next_step(steps, search, 100) == Planned(70.71, long=True)
    # Short steps that sustained 100 no longer count.
    assert search_result(steps, search).interval == (50 / (1 + 0.03 / 0.97), 100)


def test_after_a_leak_the_highest_lower_rate_of_a_short_step_is_repeated_for_longer() -> None:
    steps = [Done(40, long=False), Done(80, long=False), Done(100, long=False)]
    steps += [Done(110, long=False, refusals=NO), Done(100, long=True, refusals=NO)]
    search = Search(precision=0.1, factor=2)
    assert next_step(steps, search, 40) == Planned(80, long=True)
    steps.append(Done(80, long=True, refusals=NO))
    assert next_step(steps, search, 40) == Planned(40, long=True)
    steps.append(Done(40, long=True))
    assert next_step(steps, search, 40) == Planned(56.57, long=True)


def test_without_time_for_long_steps_the_rate_of_a_short_one_is_told_as_not_confirmed() -> None:
    steps = [Done(50, long=False), Done(100, long=False), Done(100, long=True, refusals=NO)]
    result = search_result(steps, Search())
    assert result.rate_per_second == pytest.approx(50 * 0.97, rel=0.01)
    assert (result.interval[1], result.confirmed) == (100, False)


def test_the_search_starts_at_the_guess_and_doubles_until_a_rate_is_not_sustained() -> None:
    search = Search(factor=2, precision=0.1)
    assert next_step([], search, 1000) == Planned(1000, long=False)
    steps = [Done(1000, long=False)]
    assert next_step(steps, search, 1000) == Planned(2000, long=False)
    steps.append(Done(2000, long=False, refusals=NO))
    assert next_step(steps, search, 1000) == Planned(1414, long=False)  # the geometric mean


def test_a_guess_that_is_too_high_is_halved() -> None:
    steps = [Done(1000, long=False, refusals=NO)]
    assert next_step(steps, Search(factor=2), 1000) == Planned(500, long=False)


def test_a_narrow_bracket_is_confirmed_by_a_long_step_and_then_the_search_ends() -> None:
    steps = [Done(1000, long=False), Done(1090, long=False, refusals=NO)]
    search = Search(precision=0.1)
    assert next_step(steps, search, 1000) == Planned(1000, long=True)
    steps.append(Done(1000, long=True))
    assert next_step(steps, search, 1000) is None
    # The policy cannot detect an overload of 3 %: 1000 / (1 + 0.03 / 0.97) = 970.
    assert search_result(steps, search) == SustainableRate(
        pytest.approx(970), (pytest.approx(970), 1090), confirmed=True, limit=NO
    )


def test_a_rate_is_confirmed_again_if_the_machine_became_slower_since() -> None:
    search = Search(precision=0.1)
    steps = [
        Done(900, long=False, generator_us=50),
        Done(1000, long=False, generator_us=50),
        Done(1000, long=True, generator_us=52),
    ]
    refused = Done(1090, long=False, refusals=NO, generator_us=64)
    assert next_step([*steps, refused], search, 1000) is None, "64 is not a quarter more than 52"
    steps.append(replace(refused, generator_us=65))
    assert next_step(steps, search, 1000) == Planned(1000, long=True)
    assert next_step([*steps, Done(1000, long=True, generator_us=66)], search, 1000) is None
    assert next_step(steps, search, 1000, spent_s=search.budget_s) is None
    steps.append(Done(1000, long=True, refusals=NO, generator_us=66))
    assert not search_result(steps, search).confirmed
    assert next_step(steps, search, 1000) == Planned(900, long=True)
    steps.append(Done(900, long=True, generator_us=66))
    assert next_step(steps, search, 1000) == Planned(948.7, long=True)
    assert search_result(steps, search).confirmed


def test_a_rate_that_was_sustained_above_one_that_was_not_does_not_count() -> None:
    steps = [
        Done(1000, long=False),
        Done(2000, long=False),
        Done(1500, long=False, refusals=NO),
    ]
    assert search_result(steps, Search()).interval[1] == 1500
    assert search_result(steps, Search()).rate_per_second == pytest.approx(970)


def test_a_step_that_was_refused_for_its_input_alone_is_repeated_once() -> None:
    search = Search(factor=2, precision=0.1)
    late = Done(4000, long=False, refusals=("The generator was late.",), by_input_alone=True)
    assert next_step([late], search, 4000) == Planned(4000, long=False)
    assert next_step([late, late], search, 4000) == Planned(2000, long=False)
    assert next_step([late, Done(4000, long=False)], search, 4000) == Planned(8000, long=False)
    slow = Done(4000, long=False, refusals=NO)
    assert next_step([late, slow], search, 4000) == Planned(2000, long=False)


def test_a_refusal_whose_repetition_was_sustained_does_not_bound_the_result() -> None:
    late = Done(1000, long=True, refusals=("The generator was late.",), by_input_alone=True)
    steps = [late, Done(1000, long=True), Done(2000, long=False, refusals=NO)]
    result = search_result(steps, Search(factor=2, precision=1))
    assert (result.rate_per_second, result.interval[1]) == (pytest.approx(970), 2000)
    assert result.limit == NO


def test_a_bound_with_many_digits_is_tried_once() -> None:
    search = Search(max_rate_per_second=12_346, min_rate_per_second=12_344, precision=0.01)
    assert next_step([], search, 99_999) == Planned(12_346, long=False)
    steps = [Done(12_346, long=False)]
    assert next_step(steps, search, 99_999) == Planned(12_346, long=True)
    steps = [Done(12_346, long=False, refusals=NO)]
    assert next_step(steps, search, 99_999) == Planned(12_344, long=False)
    assert next_step([*steps, Done(12_344, long=False, refusals=NO)], search, 99_999) is None


@pytest.mark.parametrize(
    ("steps", "spent_s", "by"),
    [
        ([Done(1000, long=True), Done(1050, long=False, refusals=NO)], 1, "precision"),
        ([Done(5000, long=True)], 1, "highest rate"),
        ([Done(10, long=False, refusals=NO)], 1, "lowest rate"),
        ([Done(1000, long=True), Done(2000, long=False, refusals=NO)], 1, "steps"),
        ([Done(1000, long=True)], 100, "budget"),
    ],
)
def test_a_search_tells_why_it_ended(steps: list[Done], spent_s: float, by: str) -> None:
    search = Search(
        precision=0.1,
        max_rate_per_second=5000,
        min_rate_per_second=10,
        max_steps=2,
        budget_s=100,
    )
    assert ended_by(steps, search, spent_s) == by


def test_the_search_ends_at_its_bounds() -> None:
    search = Search(min_rate_per_second=100, max_rate_per_second=300, factor=2)
    assert next_step([], search, 9000) == Planned(300, long=False)
    assert next_step([Done(200, long=False)], search, 200) == Planned(300, long=False)
    # The highest allowed rate is sustained: it is confirmed, and there is no upper bound.
    steps = [Done(300, long=False), Done(300, long=True)]
    assert next_step(steps, search, 300) is None
    assert search_result(steps, search).interval[1] is None
    refused = [Done(100, long=False, refusals=NO)]
    assert next_step(refused, search, 100) is None
    assert search_result(refused, search) == SustainableRate(
        None, (0.0, 100), confirmed=False, limit=NO
    )


def test_steps_and_seconds_bound_the_search_and_the_result_says_that_it_is_not_confirmed() -> None:
    search = Search(max_steps=2, budget_s=60)
    steps = [Done(100, long=False), Done(200, long=False, refusals=NO)]
    assert next_step(steps, search, 100) is None
    assert next_step(steps[:1], search, 100, spent_s=60) is None
    assert not search_result(steps, search).confirmed


def test_the_last_step_that_there_is_time_for_confirms() -> None:
    search = Search(max_steps=9, budget_s=300)
    steps = [Done(1000, long=False), Done(2000, long=False), Done(4000, long=False, refusals=NO)]
    assert next_step(steps, search, 1000, spent_s=120) == Planned(2828, long=False)
    assert next_step(steps, search, 1000, spent_s=190) == Planned(2000, long=True)
    confirmed = [*steps, Done(2000, long=True)]
    assert next_step(confirmed, search, 1000, spent_s=260) == Planned(2828, long=True)
    few = search.model_copy(update={"max_steps": 4})
    assert next_step(steps, few, 1000, spent_s=10) == Planned(2000, long=True)
    assert next_step([], search, 1000, spent_s=90) == Planned(1000, long=False)
    refused = [Done(1000, long=False, refusals=NO)]
    assert next_step(refused, search, 1000, spent_s=290) == Planned(500, long=True)


def test_a_system_that_sustains_nothing_gives_no_rate() -> None:
    search = Search(min_rate_per_second=1000, max_steps=50)
    assert search_on(System(10), search, 5000).rate_per_second is None


def found_in_few_steps(capacity: float, guess: float, noise: float, seed: int) -> bool:
    """Whether what a pipeline kept up with, and the cores that it used, lead to its capacity."""
    system = System(capacity, capacity_noise=noise, latency_noise_ms=800 * noise, idle_share=0.1)
    search = Search(
        precision=0.05,
        max_steps=9,
        step_warm_up_s=10,
        steady_latency=SteadyLatency(max_cpu_share=1),
    )
    result = search_on(system, search, guess, seed)
    low, high = result.interval
    if result.rate_per_second is None or high is None:
        return False
    is_near = 0.95 <= result.rate_per_second / capacity <= 1.01
    # The precision, and the resolution of the policy.
    return is_near and high <= low * 1.09 and result.confirmed


@settings(deadline=None, max_examples=40)
@given(capacity=st.floats(300, 300_000), guess=st.sampled_from([500, 4000, 20_000]))
def test_the_rate_of_a_pipeline_without_noise_is_always_found(
    capacity: float, guess: float
) -> None:
    assert found_in_few_steps(capacity, guess, noise=0.0, seed=0)


def test_the_rate_of_a_noisy_pipeline_is_found_in_nearly_all_searches() -> None:
    """A step just below the capacity may be refused by chance."""
    rng = random.Random(7)
    found = [
        found_in_few_steps(rng.uniform(300, 300_000), rng.choice([500, 4000, 20_000]), 0.05, seed)
        for seed in range(300)
    ]
    assert sum(found) >= 0.99 * len(found)


def test_a_long_step_that_was_refused_by_a_little_leads_to_a_rate_near_to_it() -> None:
    search = Search(precision=0.05, max_steps=9, steady_latency=SteadyLatency(max_cpu_share=1))
    steps = [
        Done(500, long=False),
        Done(1020, long=False),
        Done(1070, long=False, refusals=NO, processed=0.94),
        Done(1020, long=True, refusals=NO, processed=0.97),
    ]
    planned = next_step(steps, search, 500)
    assert planned is not None
    assert planned.long
    assert 970 < planned.rate_per_second < 1020
    # The last step is a little farther away, since no other one follows.
    last = next_step([Done(rate, long=False) for rate in (1, 2, 4, 8)] + steps, search, 1)
    assert last is not None
    assert last.long
    assert 950 < last.rate_per_second < planned.rate_per_second


def test_a_step_that_was_not_sustained_gives_the_next_rates() -> None:
    search = Search(precision=0.1, steady_latency=SteadyLatency(max_rise=0.02, max_cpu_share=1))
    steps = [
        Done(1000, long=False, cpu_share=0.25),  # four times as much would use all cores
        Done(4000, long=False, refusals=NO, processed=0.5),
    ]
    assert next_step(steps[:1], search, 1000) == Planned(4000, long=False)
    highest = 4000 * 0.5 / 0.98  # that the policy would let pass
    below, above = round(highest / 1.1**0.25), round(highest * 1.1**0.7)
    assert next_step(steps, search, 1000) == Planned(below, long=False)
    steps.append(Done(below, long=False))
    assert next_step(steps, search, 1000) == Planned(above, long=False)
    steps.append(Done(above, long=False, refusals=NO))
    assert next_step(steps, search, 1000) == Planned(below, long=True)


def test_steps_that_are_as_long_as_a_confirmation_need_none() -> None:
    search = Search(precision=0.15, step_s=12, confirm_s=12)
    first = Planned(1000, long=True)
    assert next_step([], search, 1000) == first
    steps = [Done(1000, long=True), Done(1100, long=True, refusals=NO)]
    assert next_step(steps, search, 1000) is None
    assert search_result(steps, search).confirmed


def test_a_rate_that_a_cold_pipeline_did_not_sustain_is_tried_again_before_it_is_a_bound() -> None:
    search = Search(precision=0.15, steady_latency=SteadyLatency(max_rise=0.03, max_cpu_share=1))
    steps = [
        Done(60_000, long=False, refusals=NO, cold=True),
        Done(30_000, long=False),
        Done(55_000, long=False),
        Done(55_000, long=True),
    ]
    again = Planned(60_000, long=False)
    assert next_step(steps, search, 60_000) == again
    refused = [*steps, Done(60_000, long=False, refusals=NO)]
    assert next_step(refused, search, 60_000) is None
    assert search_result(refused, search).interval[1] == 60_000
    cold_again = [*steps, Done(60_000, long=False, refusals=NO, cold=True)]
    assert next_step(cold_again, search, 60_000) is None
    sustained = [*steps, Done(60_000, long=False)]
    assert next_step(sustained, search, 60_000) == Planned(120_000, long=False)
    assert search_result(sustained, search).interval[1] is None
    # A higher rate that was sustained is evidence, too.
    assert search_result([*steps, Done(70_000, long=False)], search).interval[1] is None
    warm = [replace(step, cold=False) for step in steps]
    assert next_step(warm, search, 60_000) is None


def test_a_step_is_a_short_run_of_the_same_workload_that_names_its_search() -> None:
    request = a_request()
    search = Search(step_warm_up_s=5, step_s=15, confirm_s=30)
    workload = request.workload.model_copy(update={"search": search})
    request = request.model_copy(update={"workload": workload, "seed": 40})
    short = step_request(request, Planned(1000, long=False), 2, warm=True)
    assert (short.run_id, short.step_of) == (f"{RUN_ID}-step-02", RUN_ID)
    assert short.seed == 42
    assert short.workload.load.rate_per_second == 1000
    assert short.workload.search is None
    lasting = {"cool_down_s": 3, "optimised": True}
    assert short.workload.phases == Phases(warm_up_s=5, measure_s=15, **lasting)
    assert short.workload.judgement.give_up_ms == 10_000  # drained within 10 s, or not sustained
    long = step_request(request, Planned(1000, long=True), 1, warm=False)
    assert long.workload.phases == Phases(warm_up_s=10, measure_s=30, **lasting)


@pytest.mark.parametrize(
    ("second_ms", "cool_down_s"),
    [
        pytest.param(1000, 11, id="windows of 8 s, and the usual 3 s"),
        pytest.param(200, 5, id="event time runs five times as fast"),
    ],
)
def test_windows_with_measured_records_close_by_event_time_within_a_step(
    second_ms: int, cool_down_s: int
) -> None:
    request = a_request()
    content = request.workload.content.model_copy(update={"second_ms": second_ms})
    workload = request.workload.model_copy(update={"search": Search(), "content": content})
    gem_packs = load_domain("gem_packs").spec
    changes = {"workload": workload, "domain": gem_packs, "stages": ("revenue",)}
    step = step_request(
        request.model_copy(update=changes), Planned(1000, long=False), 1, warm=False
    )
    assert step.workload.phases.cool_down_s == cool_down_s


def test_rules_of_a_run_to_be_cited_hold_for_the_run_at_the_rate_found_not_for_its_steps() -> None:
    request = a_request()
    strict = Validity(
        must_be_steady=True,
        must_be_undisturbed=True,
        max_others_share=0.05,
        max_steal_share=0.02,
        max_send_delay_p99_ms=7,
    )
    changes = {"search": Search(), "validity": strict}
    request = request.model_copy(update={"workload": request.workload.model_copy(update=changes)})
    step = step_request(request, Planned(1000, long=True), 1, warm=False)
    assert step.workload.validity == Validity(max_send_delay_p99_ms=7)
    assert verifying_request(request, 900, warm=True).workload.validity == strict


def test_a_cold_pipeline_warms_up_for_the_verifying_run_as_for_a_step() -> None:
    request = a_request()
    search = Search(step_warm_up_s=40, until_steady=True)
    phases = Phases(warm_up_s=5, measure_s=15, cool_down_s=3, optimised=True)
    workload = request.workload.model_copy(update={"search": search, "phases": phases})
    request = request.model_copy(update={"workload": workload})
    warm = verifying_request(request, 900, warm=True)
    assert (warm.workload.load.rate_per_second, warm.workload.search) == (900, None)
    assert warm.workload.phases == phases
    cold = verifying_request(request, 900, warm=False)
    assert cold.workload.phases == phases.model_copy(update={"warm_up_s": 80, "until_steady": True})
    longer = request.model_copy(
        update={"workload": workload.model_copy(update={"phases": Phases(warm_up_s=90)})}
    )
    same = verifying_request(longer, 900, warm=False).workload.phases
    assert same == Phases(warm_up_s=90, optimised=True)
