"""When an output gets its verdict, and the phase and second in which it counts.

Times are milliseconds after START_MS. By default the inputs are those of outputs.py, so a join is
due with latest 2300 and mean 2200. Late after 1000 ms, missing after 2000 ms.
"""

import pytest

from tests.unit.evaluator.outputs import FLOW, SPEED, join, totals_of
from tests.unit.evaluator.records import (
    FAR_MS,
    MEASURE_END_MS,
    MEASURE_MS,
    PHASES,
    START_MS,
    Reading,
    Run,
)

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("scheduled_us", "phase"),
    [
        (MEASURE_MS * 1_000 - 1, "warm_up"),
        (MEASURE_MS * 1_000, "measure"),
        (MEASURE_END_MS * 1_000 - 1, "measure"),
        (MEASURE_END_MS * 1_000, "cool_down"),
    ],
)
def test_an_output_has_the_phase_of_its_latest_scheduled_input(scheduled_us, phase):
    flow = Reading("flow", START_MS + 2_100, 300, 0, scheduled_us=scheduled_us)
    speed = Reading("speed", START_MS + 2_300, 80.0, 1, scheduled_us=scheduled_us - 10_000_000)
    found = totals_of(flow, speed, join(2_400), join(2_401, 1))
    assert found.verdicts == {("join", phase, "exact"): 1, ("join", phase, "duplicate"): 1}
    assert {where[2] for where in found.latencies} == {phase}


@pytest.mark.parametrize(
    ("scheduled_ms", "phase"),
    [(999, "warm_up"), (1_000, "measure"), (3_999, "measure"), (4_000, "cool_down")],
)
def test_a_warm_up_that_ends_earlier_moves_the_phases_of_what_comes(scheduled_ms, phase):
    scheduled_us = 1000 * (START_MS + scheduled_ms)
    flow = Reading("flow", START_MS + 2_100, 300, 0, scheduled_us=scheduled_us)
    speed = Reading("speed", START_MS + 2_300, 80.0, 1, scheduled_us=scheduled_us)
    run = Run("join")
    shorter = PHASES.phases.model_copy(update={"warm_up_s": 1})
    run.evaluation.replan(PHASES.model_copy(update={"phases": shorter}))
    run.add(flow, speed)
    assert run.evaluation.open_in_measure() == (phase == "measure")
    run.add(join(2_400))
    run.advance(FAR_MS)
    assert run.totals().verdicts == {("join", phase, "exact"): 1}


@pytest.mark.parametrize(
    ("after_ms", "phase"), [(1_999, "warm_up"), (2_000, "measure"), (5_000, "cool_down")]
)
def test_an_output_that_no_input_explains_has_the_phase_of_its_own_time(after_ms, phase):
    run = Run("join")
    run.add(join(after_ms))
    run.advance(FAR_MS)
    assert run.totals().verdicts == {("join", phase, "unexpected"): 1}


def test_a_missing_output_counts_in_the_second_of_its_latest_input():
    run = Run("join")
    run.add(FLOW, Reading("speed", START_MS + 3_999, 80.0, 1))
    run.advance(FAR_MS)
    assert run.totals().verdict_seconds == {("join", 3, "missing"): 1}


def test_an_output_is_missing_only_after_it_was_given_up():
    run = Run("join")
    run.add(FLOW, SPEED)
    run.advance(START_MS + 4_300)
    assert run.totals().verdicts == {}
    assert run.evaluation.open_in_measure() == 1
    run.advance(START_MS + 4_301)
    assert run.totals().verdicts == {("join", "measure", "missing"): 1}
    assert run.evaluation.open_in_measure() == 0


@pytest.mark.parametrize("frontiers", [(4_300, FAR_MS), (FAR_MS, 4_300)])
def test_an_output_is_not_missing_while_either_side_is_unread(frontiers):
    run = Run("join")
    run.add(FLOW, SPEED)
    run.advance(START_MS + frontiers[0], START_MS + frontiers[1])
    assert run.totals().verdicts == {}


def test_a_missing_output_that_comes_after_all_is_late_and_no_longer_missing():
    run = Run("join")
    run.add(FLOW, SPEED)
    run.advance(START_MS + 6_000)
    assert run.totals().verdicts == {("join", "measure", "missing"): 1}
    run.add(join(6_500))
    run.read_all()
    found = run.totals()
    assert found.verdicts == {("join", "measure", "late"): 1}
    assert found.verdict_seconds == {("join", 6, "late"): 1}
    assert found.latencies["join", "latest", "measure", 4_200] == 1


def test_an_output_read_before_its_inputs_waits_for_them():
    run = Run("join")
    run.add(join(2_400))
    run.advance(START_MS + 3_400)
    assert run.totals().verdicts == {}
    assert run.evaluation.open_in_measure() == 1
    run.add(FLOW, SPEED)
    assert run.totals().verdicts == {("join", "measure", "exact"): 1}


def test_an_output_is_unexpected_once_the_inputs_are_read_past_its_deadline():
    run = Run("join")
    run.add(join(2_400))
    run.advance(START_MS + 3_400)
    assert run.totals().verdicts == {}
    run.advance(START_MS + 3_401)
    assert run.totals().verdicts == {("join", "measure", "unexpected"): 1}
    assert run.evaluation.open_in_measure() == 0


def test_warm_up_and_cool_down_do_not_keep_a_run_open():
    before = MEASURE_MS * 1_000 - 1
    run = Run("join")
    run.add(
        Reading("flow", START_MS + 1_000, 1, 0, scheduled_us=before),
        Reading("speed", START_MS + 1_000, 1, 1, scheduled_us=before),
    )
    assert run.evaluation.open_in_measure() == 0
