"""The broker is killed with -9 while a run goes on, and started again by whoever supervises it."""

from pathlib import Path

import pytest

from tests.faults.breakable_stack import (
    breakable_stack,
    eventually,
    every_event_once,
    nothing_twice,
)

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

REASON = "kafka was ended by SIGKILL in the middle of the run."


def test_a_run_whose_broker_is_killed_counts_nothing_twice_and_the_next_is_clean(
    tmp_path: Path,
) -> None:
    with breakable_stack(tmp_path) as stack:
        run = stack.begin_load(measure_s=30)
        stack.await_measuring()
        stack.kill("kafka")
        code, report, said = stack.ended(run)
        eventually(stack.is_ready, "every part serves again")
        assert stack.restarts()["kafka"] == 1
        if report["valid"]:
            assert code == (0 if report["conclusion"]["clean"] else 1), said
        else:
            assert code == 1, said
            assert report["invalid_reasons"][-1] == REASON, said
        nothing_twice(stack, report)
        stack.has_clean_run()
        every_event_once(stack)
