"""Parts are paused for some seconds of a run (SIGSTOP, SIGCONT), as in a network or machine outage:
nothing is lost or counted twice, and a run that deviates from its plan reports it."""

from collections.abc import Iterator

import pytest

from tests.faults.breakable_stack import (
    PIPELINE,
    STAGES,
    BreakableStack,
    breakable_stack,
    every_event_once,
    nothing_twice,
    sequences,
)

pytestmark = pytest.mark.faults

PAUSE_S = 5
RATE = 100
TOTAL_S = 20  # warm-up, measure and cool-down of the load


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BreakableStack]:
    with breakable_stack(tmp_path_factory.mktemp("stack")) as found:
        yield found
        assert set(found.restarts().values()) == {0}


@pytest.mark.parametrize("part", ["evaluator", "store", "conductor"])
def test_a_run_is_clean_although_a_part_that_only_follows_it_stands_still(
    stack: BreakableStack, part: str
) -> None:
    run = stack.begin_load()
    stack.await_measuring()
    with stack.paused(part):
        stack.let_pass(PAUSE_S)
    report = stack.ended_clean(run)
    nothing_twice(stack, report)
    every_event_once(stack)


def test_outputs_of_a_driver_that_stands_still_are_late_and_none_is_lost(
    stack: BreakableStack,
) -> None:
    run = stack.begin_load(deadline_ms=1_000 * PAUSE_S // 2)
    stack.await_measuring()
    with stack.paused("driver"):
        stack.let_pass(PAUSE_S)
    code, report, said = stack.ended(run)
    assert (code, report["invalid_reasons"], report["conclusion"]["clean"]) == (1, [], False), said
    nothing_twice(stack, report, deadline_ms=1_000 * PAUSE_S // 2)
    for stage in STAGES:
        verdicts = report["pipelines"][PIPELINE]["stages"][stage]["verdicts"]
        assert verdicts["late"] > 0, stage
        assert sum(verdicts.values()) == verdicts["exact"] + verdicts["late"], stage
    assert report["pipelines"][PIPELINE]["restarts"] == []


def test_a_run_whose_generator_stands_still_is_invalid_and_has_every_record(
    stack: BreakableStack,
) -> None:
    run = stack.begin_load(late_ms=1_000)
    stack.await_measuring()
    with stack.paused("generator"):
        stack.let_pass(PAUSE_S)
    code, report, said = stack.ended(run)
    assert code == 1, said
    (reason,) = report["invalid_reasons"]
    assert reason.startswith("The generator was late: p99 send delay"), said
    assert reason in said.replace("\n", " ")
    assert set(sequences(stack, report["run_id"])) == set(range(RATE * TOTAL_S))
    assert report["conclusion"]["clean"]
    nothing_twice(stack, report)
    stack.has_clean_run()
