"""Kills each part with SIGKILL at a random time of a run, from its preparation to its last output.

The times depend on a seed, which is printed: TIDEGAUGE_FAULTS_SEED=… repeats them.
"""

import os
import random
import secrets
import subprocess
from collections.abc import Iterator

import pytest

from deploy.local.parts import KAFKA, SERVICES
from tests.faults.breakable_stack import (
    BreakableStack,
    breakable_stack,
    eventually,
    every_event_once,
    nothing_twice,
)
from tests.traffic import FLOW

pytestmark = pytest.mark.faults

SEED = int(os.environ.get("TIDEGAUGE_FAULTS_SEED") or secrets.randbelow(1_000_000))
# Records on traffic.flow since the start of a run: at least this much probe traffic, then the load.
PROBES, LOAD = 500, 1_000
CONDUCTOR_ENDED = "The conductor exited during the run."
# Permitted failure reasons of a run that lost this part; runs that lost other parts continue.
REASONS = {
    # A conductor that cannot reach the broker in time exits, and the next one concludes the run.
    # One that concludes before the broker is back has not heard of the kill.
    "kafka": (
        "kafka was terminated by SIGKILL during the run.",
        "A request to the broker failed: ",
        CONDUCTOR_ENDED,
    ),
    "generator": "generator was terminated by SIGKILL during the run.",
    "runner": "runner was terminated by SIGKILL during the run.",
    "conductor": CONDUCTOR_ENDED,
    "driver": "pipeline:calibration failed: the program of calibration exited (code -9)",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BreakableStack]:
    with breakable_stack(tmp_path_factory.mktemp("stack")) as found:
        yield found


@pytest.mark.parametrize("part", [KAFKA.name, *SERVICES, "driver"])
def test_a_run_survives_a_kill_at_any_time_or_says_why_not(
    stack: BreakableStack, part: str
) -> None:
    moment = random.Random(f"{SEED} {part}").randrange(PROBES + LOAD)
    print(f"TIDEGAUGE_FAULTS_SEED={SEED}: {part} is killed after {moment} records")
    killed_before = stack.restarts().get(part, 0)
    run = begin_and_await(stack, moment)
    eventually(lambda: stack.processes(part), f"{part} runs")
    stack.kill(part)
    code, report, said = stack.ended(run)
    eventually(stack.is_ready, "every part serves again")
    assert stack.restarts().get(part, 0) == killed_before + (part != "driver")
    if report["valid"]:
        assert (code, report["conclusion"]["clean"]) == (0, True), said
    else:
        assert code == 1, said
        assert report["invalid_reasons"][-1].startswith(REASONS[part]), said
    nothing_twice(stack, report)
    stack.has_clean_run()
    every_event_once(stack)


def begin_and_await(stack: BreakableStack, records: int) -> "subprocess.Popen[str]":
    """Start a run; returns once this many records of its load or probe traffic are on the topic."""
    before = stack.ends(FLOW)[FLOW]
    run = stack.begin_load()
    eventually(
        lambda: stack.ends(FLOW)[FLOW] > before + records,
        f"{records} records are sent",
    )
    return run
