"""The next step of a suite, and its time."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.suite import Pace, Suite
from services.conductor.suites.suite_state import SuitePlace, next_place, pause_ms, skip_pause_ms
from tests.unit.conductor.suites import a_step, a_suite

pytestmark = pytest.mark.unit

HOUR_MS = 3_600_000
LABELS = [f"latency at {rate}/s on spark-realtime (parse)" for rate in (100, 200, 300)]


def test_steps_come_in_order_and_begin_again() -> None:
    suite = a_suite(a_step(100), a_step(200))
    seen, place = [], SuitePlace()
    for _ in range(5):
        place, _due_ms = next_place(suite, place, 1000)
        seen.append((place.round, place.step))
        place = place.after(suite, 1000, took_place=True)
    assert seen == [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]
    assert place.runs == 5


def test_a_step_that_is_not_due_again_is_skipped() -> None:
    suite = a_suite(a_step(100, every_s=3600), a_step(200))
    place = SuitePlace(round=2, step=0, began_ms={LABELS[0]: 1_000_000})
    found, due_ms = next_place(suite, place, 2_000_000)
    assert (found.round, found.step, due_ms) == (2, 1, 2_000_000)
    found, due_ms = next_place(suite, place, 1_000_000 + HOUR_MS)
    assert (found.round, found.step) == (2, 0)


def test_when_no_step_is_due_the_suite_waits_for_the_first_that_will_be() -> None:
    suite = a_suite(a_step(100, every_s=3600), a_step(200, every_s=600))
    place = SuitePlace(round=2, step=0, began_ms={LABELS[0]: 1_000_000, LABELS[1]: 1_100_000})
    found, due_ms = next_place(suite, place, 1_200_000)
    assert (found.round, found.step, due_ms) == (2, 1, 1_100_000 + 600_000)


def test_a_suite_that_became_shorter_goes_on_with_its_next_round() -> None:
    found, _due_ms = next_place(a_suite(a_step(100)), SuitePlace(round=4, step=7), 0)
    assert (found.round, found.step) == (5, 0)


def test_what_is_known_of_steps_that_are_gone_is_forgotten() -> None:
    suite = a_suite(a_step(100), a_step(200))
    place = SuitePlace(began_ms={LABELS[2]: 5}).after(suite, 7, took_place=True)
    assert place.began_ms == {LABELS[0]: 7}


@given(st.lists(st.sampled_from((0, 60, 600)), min_size=1, max_size=5), st.integers(0, 50))
def test_every_step_gets_its_turn_and_none_before_its_time(every_s: list[int], runs: int) -> None:
    suite = a_suite(*[a_step(100 + n, each) for n, each in enumerate(every_s)])
    place, now_ms = SuitePlace(), 10**12
    began: dict[int, int] = {}
    for _ in range(runs):
        place, now_ms = next_place(suite, place, now_ms)
        last_ms = began.get(place.step)
        assert last_ms is None or now_ms - last_ms >= every_s[place.step] * 1000
        began[place.step] = now_ms
        place = place.after(suite, now_ms, took_place=True)
        now_ms += 1000
    if runs >= len(every_s):
        assert set(began) == set(range(len(every_s)))


PACE = Pace(max_cpu_share=0.5, pause_s=60, failure_pause_s=1800)


@pytest.mark.parametrize(
    ("run_s", "cpu_seconds", "failures", "pause_s", "why"),
    [
        (80, 40, 0, 60, "40 CPU s of 2 cores x 80 s are a quarter: only the least pause"),
        (80, 150, 0, 70, "150 CPU s are half of 2 cores in 150 s, of which 80 are over"),
        (80, 0, 0, 60, "nothing is known of the use"),
        (5, 1, 1, 120, "one failure doubles the pause"),
        (5, 1, 3, 480, "the third in a row: 60 x 2^3"),
        (5, 1, 50, 1800, "but never beyond the longest"),
    ],
)
def test_the_pause_keeps_the_share_of_the_processor(
    run_s: int, cpu_seconds: float, failures: int, pause_s: int, why: str
) -> None:
    assert pause_ms(PACE, run_s * 1000, cpu_seconds, 2, failures) == pause_s * 1000, why


def test_failures_are_counted_until_a_run_takes_place() -> None:
    suite = a_suite(a_step(100))
    place = SuitePlace()
    for took_place in (False, False):
        place = place.after(suite, 0, took_place)
    assert place.failures == 2
    assert place.after(suite, 0, took_place=True).failures == 0
    assert replace(place, failures=0).runs == 2


def test_a_step_that_was_skipped_is_due_again_in_the_next_round() -> None:
    suite = a_suite(a_step(100, every_s=3600), a_step(200))
    place = SuitePlace().given_up(suite, 0)
    assert (place.step, place.failures, place.runs, place.began_ms) == (1, 1, 0, {})
    found, _due_ms = next_place(suite, place.after(suite, 0, took_place=True), 1000)
    assert (found.round, found.step) == (2, 0)


def test_only_whole_rounds_of_nothing_make_a_suite_rest() -> None:
    suite = a_suite(a_step(100), a_step(200), pause_s=60, failure_pause_s=300)
    pauses_s = [skip_pause_ms(suite, failures) // 1000 for failures in range(1, 9)]
    assert pauses_s == [0, 120, 120, 240, 240, 300, 300, 300]


def a_rotation(*kinds: str, **shares: float) -> Suite:
    """Steps of 100/s, 200/s … of these kinds."""
    steps = [
        a_step(100 * (number + 1)).model_copy(update={"asked": kind})
        for number, kind in enumerate(kinds)
    ]
    return Suite.model_validate(
        a_suite(*steps).model_dump() | {"rotation": shares or dict.fromkeys(kinds, 1)}
    )


def turns(suite: Suite, run_ms: dict[int, int], count: int) -> list[int]:
    """Which steps run, given how long they take."""
    place, now_ms, seen = SuitePlace(), 0, []
    for _ in range(count):
        place, _due_ms = next_place(suite, place, now_ms)
        seen.append(place.step)
        place = place.after(suite, now_ms, took_place=True, run_ms=run_ms[place.step])
        now_ms += run_ms[seen[-1]]
    return seen


def test_kinds_get_their_shares_of_time() -> None:
    suite = a_rotation("latency", "searches", "failures", latency=3, searches=1, failures=1)
    run_ms = {0: 60_000, 1: 300_000, 2: 100_000}
    seen = turns(suite, run_ms, 200)
    spent = [seen.count(step) * run_ms[step] for step in range(3)]
    assert [round(each / sum(spent), 1) for each in spent] == [0.6, 0.2, 0.2]
    assert seen[:3] == [0, 1, 2]


def test_of_one_kind_every_step_has_its_turn() -> None:
    suite = a_rotation("latency", "bursts", "bursts", "latency", latency=1, bursts=1)
    other = suite.steps[2].model_copy(update={"stages": ("join",)})
    suite = suite.model_copy(update={"steps": (*suite.steps[:2], other, suite.steps[3])})
    assert turns(suite, dict.fromkeys(range(4), 1000), 6) == [0, 1, 2, 3, 0, 1]


def test_steps_with_the_same_pipelines_follow_each_other() -> None:
    suite = a_rotation("latency", "latency", "bursts", latency=1, bursts=1)
    assert turns(suite, dict.fromkeys(range(3), 1000), 6) == [0, 1, 2, 2, 0, 1]


def test_a_kind_whose_steps_cannot_take_place_does_not_keep_others_from_theirs() -> None:
    suite = a_rotation("latency", "engines")
    place, now_ms, seen = SuitePlace(), 0, []
    for _ in range(6):
        place, _due_ms = next_place(suite, place, now_ms)
        seen.append(place.step)
        if place.step == 1:
            place = place.given_up(suite, now_ms)
        else:
            place = place.after(suite, now_ms, took_place=True, run_ms=60_000)
        now_ms += 60_000
    assert seen == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("takes_place", [True, False])
def test_a_kind_that_is_new_catches_up_for_an_hour_at_most(takes_place: bool) -> None:
    suite = a_rotation("latency", "bursts")
    place = SuitePlace(spent_ms={"latency": 7 * 24 * HOUR_MS})
    now_ms, waited_ms = 0, 0
    while True:
        place, _due_ms = next_place(suite, place, now_ms)
        if place.step == 0:
            break
        if takes_place:
            place = place.after(suite, now_ms, took_place=True, run_ms=60_000)
        else:
            place = place.given_up(suite, now_ms)
        now_ms, waited_ms = now_ms + 60_000, waited_ms + 60_000
    assert waited_ms <= HOUR_MS + 60_000


def test_shares_hold_for_runs_longer_than_an_hour() -> None:
    suite = a_rotation("latency", "searches", latency=0.9, searches=0.1)
    run_ms = {0: 600_000, 1: 2 * HOUR_MS}
    seen = turns(suite, run_ms, 800)
    spent = [seen.count(step) * run_ms[step] for step in range(2)]
    assert spent[1] / sum(spent) == pytest.approx(0.1, abs=0.02)


def test_steps_that_differ_in_no_part_of_their_labels_have_their_turns() -> None:
    first = a_step(100)
    phases = first.workload.phases.model_copy(update={"measure_s": 600})
    longer = first.workload.model_copy(update={"phases": phases})
    second = first.model_copy(update={"workload": longer})
    plain = a_suite(first, second, a_step(200))
    suite = Suite.model_validate(plain.model_dump() | {"rotation": {"latency": 1}})
    assert [step.label for step in suite.steps] == [LABELS[0], f"{LABELS[0]}, no. 2", LABELS[1]]
    assert Suite.model_validate_json(suite.model_dump_json()) == suite
    assert turns(suite, dict.fromkeys(range(3), 1000), 6) == [0, 1, 2, 0, 1, 2]


def test_runs_take_no_more_hours_of_a_day_than_they_may() -> None:
    suite = a_suite(a_step(100), hours_per_day=1)
    recent = ((0, HOUR_MS // 2), (2 * HOUR_MS, HOUR_MS // 2))
    place = SuitePlace(recent=recent)
    assert next_place(suite, place, 3 * HOUR_MS)[1] == 24 * HOUR_MS  # the first is then dropped
    assert next_place(suite, place, 25 * HOUR_MS)[1] == 25 * HOUR_MS
    less = replace(place, recent=recent[:1])
    assert next_place(suite, less, 3 * HOUR_MS)[1] == 3 * HOUR_MS


def test_a_bound_in_cores_counts_where_it_is_lower() -> None:
    assert Pace(max_cpu_share=0.5).allowed_cores(8) == 4
    assert Pace(max_cpu_share=0.5, max_cores=1).allowed_cores(8) == 1
    assert pause_ms(Pace(max_cpu_share=0.5, max_cores=1, pause_s=0), 60_000, 90, 8, 0) == 30_000


def test_a_rotation_has_a_share_for_each_kind_and_no_other() -> None:
    with pytest.raises(ValueError, match="for no other: engines"):
        a_rotation("latency", latency=1, engines=1)
    with pytest.raises(ValueError, match="for no other: bursts"):
        a_rotation("latency", "bursts", latency=1)
